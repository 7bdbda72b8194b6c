"""Evidence files (``opcheck-evidence/1``): the results of PyTorch's operator database on a real device.

``opcheck probe`` writes them as YAML or JSON, and the tools that propose or check statements of the
op lists read them.  A file contains the results of a single machine, torch and device; the results of
another machine never replace them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from opcheck.common import documents
from opcheck.common.errors import InputError
from opcheck.common.names import DTYPES
from opcheck.common.yaml_text import load_shipped
from opcheck.data.strict_yaml import Document, read
from opcheck.model.records import Record

SCHEMA = "opcheck-evidence/1"

Outcome = Literal["works", "falls back", "raises", "wrong", "crashes", "too long", "not compared", "not judged"]
#: outcome -> its meaning for an OpInfo with a dtype
OUTCOMES: dict[Outcome, str] = load_shipped(__file__, "evidence_outcomes.yaml")
Phase = Literal["forward", "gradient"]
PHASES: tuple[Phase, Phase] = ("forward", "gradient")

_OVERLOAD = re.compile(r"\w+::\w+(\.\w+)?")
#: a commit of PyTorch
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Machine(Record, frozen=True, kw_only=True):
    """The machine, device and torch that the results come from."""

    #: the name that the user gave, and the name that the driver reports
    device: str
    device_name: str
    #: macOS, Linux or Windows, and its version
    os: str
    os_version: str
    arch: str
    torch: str
    #: the full hash in PyTorch's repository; empty: this build does not report it
    commit: str
    python: str = ""


class Result(Record, frozen=True, kw_only=True):
    """The result of an OpInfo with a dtype."""

    #: ``name`` or ``name/variant``
    opinfo: str
    dtype: str
    phase: Phase
    outcome: Outcome
    #: samples that ran on the device or raised there alone, and how many of them had this outcome
    samples: int
    failed: int = 0
    #: the overload that raised, was wrong, or fell back; empty: unknown
    op: str = ""
    #: the whole text that was raised or warned of, how the process ended, or what is wrong with the result
    text: str = ""
    #: the call's tensors, as ``2x3:float32``
    inputs: tuple[str, ...] = ()
    #: the largest distance from float64 in tolerances; None: infinite, or nothing was compared
    error: float | None = None
    #: overload -> agrees, loose, wrong or not compared, the worst of its calls
    calls: dict[str, str] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that identifies the result."""
        return self.opinfo, self.dtype, self.phase


class Settings(Record, frozen=True, kw_only=True):
    """The settings that the samples were run with."""

    samples: int
    seconds: float
    #: PYTORCH_ENABLE_MPS_FALLBACK=1 was set
    cpu_fallback: bool


class EvidenceFile(Record, frozen=True, kw_only=True):
    """The content of an evidence file."""

    schema: str = SCHEMA
    tool: str
    #: the day when the run began
    made: str
    machine: Machine
    settings: Settings
    #: False: the run stopped before it was complete
    complete: bool
    results: tuple[Result, ...]


def load(path: Path) -> EvidenceFile:
    """Read and lint an evidence file.

    Raises:
        InputError: the file cannot be read, has another form, or contradicts itself; the error names every problem.
    """
    document = _json(path) if path.suffix.lower() == ".json" else read(path, path.name)
    evidence: Any = None
    if not document.problems:
        try:
            evidence = msgspec.convert(document.value, EvidenceFile, strict=True)
        except msgspec.ValidationError as error:
            document.report((), str(error))
        else:
            lint(document, evidence)
    if document.problems:
        problems = [str(problem) for problem in sorted(set(document.problems))]
        where = f"{path}, {len(problems)} problems" if len(problems) > 5 else str(path)
        hint = f"opcheck probe writes such a file: {SCHEMA}"
        raise InputError("; ".join(problems[:5]), context=where, hint=hint)
    return cast("EvidenceFile", evidence)


def _json(path: Path) -> Document:
    """Read a JSON file with a JSON parser, because YAML would read 1e-05 as a string."""
    document = Document(path.name)
    try:
        document.value = documents.from_json(documents.read(path))
    except documents.FileError as error:
        document.report((), f"cannot be read: {error}")
    except documents.DocumentError as error:
        document.report((), str(error))
    return document


def lint(document: Document, evidence: EvidenceFile) -> None:
    """Report values that contradict each other or cannot be true."""
    if evidence.schema != SCHEMA:
        document.report(("schema",), f"{evidence.schema!r} is not {SCHEMA!r}")
    if not _DATE.fullmatch(evidence.made):
        document.report(("made",), f"not a day: {evidence.made!r}")
    machine = evidence.machine
    if machine.commit and not _COMMIT.fullmatch(machine.commit):
        document.report(("machine", "commit"), f"not a commit: {machine.commit!r}")
    for field in ("device", "os", "os_version", "torch"):
        if not getattr(machine, field):
            document.report(("machine", field), "it identifies the machine of the results")
    seen: set[tuple[str, str, str]] = set()
    for index, result in enumerate(evidence.results):
        for field, message in _problems(result):
            document.report(("results", index, field), message)
        if result.key in seen:
            document.report(("results", index), f"{', '.join(result.key)} occurs twice")
        seen.add(result.key)


def _problems(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the fields of a result that cannot be true, each with a message."""
    if result.dtype not in DTYPES:
        yield "dtype", f"unknown dtype: {result.dtype!r}"
    for op in (*result.calls, *filter(None, [result.op])):
        if not _OVERLOAD.fullmatch(op):
            yield "calls", f"not an operator: {op!r}"
    if result.outcome in {"works", "falls back", "not compared"} and not result.samples:
        yield "samples", f"{result.outcome}, but no sample ran"
    if result.outcome in {"raises", "wrong", "crashes", "falls back"} and not result.text:
        yield "text", f"{result.outcome}, but its text is missing"
    states = set(result.calls.values())
    if result.outcome == "works" and not states & {"agrees", "loose"}:
        yield "calls", "works, but no call was compared"
    if ("wrong" in states) != (result.outcome == "wrong"):
        yield "calls", f"{result.outcome}, but a call is {'' if 'wrong' in states else 'not '}wrong"
    if result.failed > result.samples:
        yield "failed", f"{result.failed} of {result.samples} samples"


def schema() -> dict[str, Any]:
    """Return the JSON schema of an evidence file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA}
    return head | msgspec.json.schema(EvidenceFile)
