"""Merges evidence of machines into a folder: the runs, and what they say of the predictions.

Each run is a file of its own, so that merging again changes nothing and two merges at once lose nothing; everything
else is computed from the files of the runs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from opcheck.common import caches, documents
from opcheck.common.errors import InputError, explain_errors
from opcheck.common.files import write_text
from opcheck.common.tool import TOOL
from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists
from opcheck.device.verify import name_statement, next_release
from opcheck.model.records import Record

SCHEMA = "opcheck-host-evidence/1"
FILE = "evidence.json"
#: The variable with the key of the signature, which CI keeps as a secret; without it the user's own key signs.
KEY = "OPCHECK_EVIDENCE_KEY"
#: bytes of a step's rows, and rows of a step
_MOST_BYTES, _MOST_ROWS = 64 << 20, 200_000

StepKind = Literal["doctor", "models", "programs", "probe", "kernels"]
STEP_KINDS: tuple[StepKind, ...] = ("doctor", "models", "programs", "probe", "kernels")


class Host(Record, frozen=True, kw_only=True):
    """The machine of a run."""

    torch: str
    macos: str
    #: as sw_vers names it
    build: str = ""
    chip: str = ""
    #: image and version of a hosted runner, such as ``macos15 20261101.12``; empty: no hosted runner
    image: str = ""
    #: whether the GPU is a virtual machine's, or an emulated one
    gpu: Literal["real", "virtual", "emulated"]


class HostRow(Record, frozen=True, kw_only=True):
    """What was predicted and what was observed of calls that are alike."""

    #: the model, the program, the OpInfo or the kernel's operation
    subject: str
    op: str
    dtypes: tuple[str, ...] = ()
    predicted: str
    observed: str
    count: int = 1
    #: what the machine printed, or by how much a result is off
    text: str = ""
    line: str = ""

    @property
    def is_contradiction(self) -> bool:
        """Return whether both claim something, and not the same."""
        return self.predicted != self.observed and "unknown" not in (self.predicted, self.observed)


class HostStep(Record, frozen=True, kw_only=True):
    """A step of a run: a model, a program, a part of the database, a family of kernels."""

    kind: StepKind
    name: str
    state: Literal["done", "failed"]
    #: SHA-256 of its file of rows; empty: it failed
    sha256: str = ""
    attempts: int = 1
    seconds: float = 0.0
    why: str = ""

    @property
    def file(self) -> str:
        """Return the name of its file of rows."""
        return f"{self.kind}-{hashlib.sha256(self.name.encode()).hexdigest()[:12]}.json"


class HostEvidence(Record, frozen=True, kw_only=True):
    """The content of ``evidence.json``."""

    schema: str = SCHEMA
    tool: str = TOOL
    #: a random name of the run: two folders of one run count once
    run: str
    #: the day when it began
    made: str
    #: digest of the op lists that predicted
    op_lists: str
    host: Host
    steps: tuple[HostStep, ...] = ()
    #: False: the run ended, or its time was up, before all steps were done
    complete: bool = False
    #: ``hmac-sha256:`` and the digits
    signature: str = ""

    def sign(self) -> HostEvidence:
        """Return it with the signature of its content."""
        return msgspec.structs.replace(self, signature=self._compute_signature())

    def is_signed(self) -> bool:
        """Return whether the signature is that of this content by the same key."""
        return secrets.compare_digest(self.signature, self._compute_signature())

    def _compute_signature(self) -> str:
        plain = msgspec.structs.replace(self, signature="")
        digits = caches.sign(msgspec.json.encode(plain), os.environ.get(KEY, "").encode())
        return f"hmac-sha256:{digits}"


_HINT = f"make it again with opcheck observe-all, and set {KEY} to the key that signed it"


def write_rows(folder: Path, step: HostStep, rows: Sequence[HostRow]) -> HostStep:
    """Write the rows of a step, and return the step with their digest."""
    body = msgspec.json.format(msgspec.json.encode(rows), indent=1)
    write_text(folder / step.file, body.decode())
    return msgspec.structs.replace(step, sha256=hashlib.sha256(body).hexdigest())


def write_evidence(folder: Path, evidence: HostEvidence) -> None:
    """Write the description of a run, signed."""
    body = msgspec.json.format(msgspec.json.encode(evidence.sign()), indent=1)
    write_text(folder / FILE, body.decode())


def read_evidence(folder: Path) -> HostEvidence:
    """Read the description of a run, and check its signature.

    Raises:
        InputError: there is none, it is damaged, or another key signed it.
    """
    with _explain(folder, "no evidence of a run"):
        evidence = documents.from_json(documents.read(folder / FILE), HostEvidence)
    if evidence.schema != SCHEMA:
        raise _refuse(folder, f"{evidence.schema!r} is not {SCHEMA!r}")
    if not evidence.is_signed():
        raise _refuse(folder, "its signature is wrong, or of another key")
    return evidence


def read_rows(folder: Path, evidence: HostEvidence) -> dict[str, tuple[HostRow, ...]]:
    """Return the rows of each step that is done, by its file.

    Raises:
        InputError: a file is missing or damaged, or has another digest.
    """
    rows = {}
    for step in evidence.steps:
        if step.state != "done":
            continue
        with _explain(folder, f"{step.file} cannot be read"):
            body = documents.read(folder / step.file, _MOST_BYTES, follow=False)
        if hashlib.sha256(body).hexdigest() != step.sha256:
            raise _refuse(folder, f"{step.file} has another digest")
        with _explain(folder, step.file):
            rows[step.file] = documents.from_json(body, tuple[HostRow, ...])
        if len(rows[step.file]) > _MOST_ROWS:
            raise _refuse(folder, f"{step.file} has more than {_MOST_ROWS:,} rows")
    return rows


def _refuse(folder: Path, why: str) -> InputError:
    return InputError(f"this evidence is refused: {why}", context=str(folder / FILE), hint=_HINT)


def _explain(folder: Path, what: str) -> AbstractContextManager[None]:
    what = f"this evidence is refused: {what}"
    return explain_errors((OSError, ValueError), what, context=folder / FILE, hint=_HINT, kind=InputError)


# -- merges evidence of machines into a folder: the runs, and what they say of the predictions --
# Each run is a file of its own, so that merging again changes nothing and two merges at once lose nothing; everything
# else is computed from the files of the runs.

SUMMARY_SCHEMA = "opcheck-observed/1"
_RUNS = "runs"
_LARGEST = 256 << 20


class KeptRun(Record, frozen=True, kw_only=True):
    """A run as the folder keeps it: its description, and the rows of its steps by their files."""

    evidence: HostEvidence
    rows: dict[str, tuple[HostRow, ...]]


class Agreement(Record, frozen=True, kw_only=True):
    """How often predictions of a kind were right on hosts that are alike."""

    kind: StepKind
    torch: str
    macos: str
    gpu: str
    agreed: int
    contradicted: int
    #: rows whose prediction or observation claims nothing
    unknown: int


class ObservedContradiction(Record, frozen=True, kw_only=True):
    """What hosts did otherwise than predicted, with an operator."""

    op: str
    predicted: str
    observed: str
    dtypes: tuple[str, ...]
    kinds: tuple[StepKind, ...]
    torch: tuple[str, ...]
    macos: tuple[str, ...]
    #: runs on a real GPU and on others, which count apart
    real: int
    virtual: int
    subjects: tuple[str, ...]
    count: int
    text: str = ""
    line: str = ""


class ObservedSummary(Record, frozen=True, kw_only=True):
    """Predicted and observed: all runs of a folder."""

    schema: str = SUMMARY_SCHEMA
    tool: str = TOOL
    runs: int
    #: runs that ended before all their steps were done
    partial: int
    hosts: tuple[str, ...]
    agreements: tuple[Agreement, ...]
    contradictions: tuple[ObservedContradiction, ...]
    #: steps that failed, with the reason
    failed: tuple[str, ...] = ()


class MergeResult(Record, frozen=True, kw_only=True):
    """What a merge did."""

    added: int
    extended: int
    unchanged: int
    summary: ObservedSummary


def merge(folders: Sequence[Path], into: Path, lists: OpLists) -> MergeResult:
    """Add the evidence of folders to the runs of ``into``, and write the summary; all or nothing.

    Raises:
        InputError: evidence is damaged, of another key, or of a torch without a list.
    """
    read = [_read_run(folder, lists) for folder in folders]
    counts = Counter(_keep(run, into) for run in read)
    while True:
        kept = _list_runs(into)
        summary = _summarize([_read_kept(path) for path in kept])
        write_text(into / "observed.json", _json(summary))
        if proposal := propose(summary, lists):
            write_text(into / "proposed.yaml", proposal)
        # Another merge may have added a run meanwhile.
        if _list_runs(into) == kept:
            break
    return MergeResult(summary=summary, **{name: counts[name] for name in ("added", "extended", "unchanged")})


def _read_run(folder: Path, lists: OpLists) -> KeptRun:
    evidence = read_evidence(folder)
    if str(Version.parse(evidence.host.torch)) not in {release.line for release in lists.releases}:
        text = f"this evidence is of torch {evidence.host.torch}, which has no list"
        hint = "opcheck lists build --wheel FILE makes it; or leave the folder out"
        raise InputError(text, context=str(folder), hint=hint)
    return KeptRun(evidence=evidence, rows=read_rows(folder, evidence))


def _keep(run: KeptRun, into: Path) -> str:
    """Write a run unless the folder has all of it; of two parts of a run the longer one counts."""
    path = into / _RUNS / f"{run.evidence.run}.json"
    before = _read_kept(path) if path.exists() else None
    if before is not None and len(before.rows) >= len(run.rows):
        return "unchanged"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, _json(run))
    return "added" if before is None else "extended"


def _read_kept(path: Path) -> KeptRun:
    what, hint = "a run that was merged before is damaged", "delete the file, and merge its evidence again"
    with explain_errors((OSError, ValueError), what, context=path, hint=hint, kind=InputError):
        return documents.from_json(documents.read(path, _LARGEST), KeptRun)


def _list_runs(into: Path) -> list[Path]:
    return sorted((into / _RUNS).glob("*.json"))


def summarize_run(folder: Path, evidence: HostEvidence) -> ObservedSummary:
    """Summarize a single run.

    Raises:
        InputError: a file of its rows is damaged.
    """
    return _summarize([KeptRun(evidence=evidence, rows=read_rows(folder, evidence))])


def _summarize(runs: Sequence[KeptRun]) -> ObservedSummary:
    """Return what the runs say; equal for equal runs, in whatever order they came."""
    tallies: dict[tuple[StepKind, str, str, str], Counter[str]] = {}
    contradictions: dict[tuple[str, str, str], list[tuple[HostEvidence, StepKind, HostRow]]] = {}
    for run in runs:
        host = run.evidence.host
        for step in run.evidence.steps:
            key = (step.kind, str(Version.parse(host.torch)), _major(host.macos), host.gpu)
            for row in run.rows.get(step.file, ()):
                tallies.setdefault(key, Counter())[_outcome(row)] += 1
                if row.is_contradiction:
                    named = (row.op, row.predicted, row.observed)
                    contradictions.setdefault(named, []).append((run.evidence, step.kind, row))
    return ObservedSummary(
        runs=len(runs),
        partial=sum(not run.evidence.complete for run in runs),
        hosts=tuple(sorted({describe_host(run.evidence) for run in runs})),
        agreements=tuple(
            Agreement(kind=kind, torch=torch, macos=macos, gpu=gpu, **{name: tally[name] for name in _OUTCOMES})
            for (kind, torch, macos, gpu), tally in sorted(tallies.items())
        ),
        contradictions=tuple(_contradiction(*named) for named in sorted(contradictions.items())),
        failed=tuple(
            sorted(
                f"{step.kind} {step.name} on {describe_host(run.evidence)}: {step.why}"
                for run in runs
                for step in run.evidence.steps
                if step.state == "failed"
            )
        ),
    )


def describe_host(evidence: HostEvidence) -> str:
    """Return ``macos15 20261101.12, Apple M1 (Virtual), macOS 15.7 (24G222), torch 2.13.0, virtual GPU``."""
    host = evidence.host
    build = f" ({host.build})" if host.build else ""
    parts = (host.image, host.chip, f"macOS {host.macos}{build}", f"torch {host.torch}")
    return ", ".join((*filter(None, parts), f"{host.gpu} GPU"))


def _major(macos: str) -> str:
    return macos.partition(".")[0]


_OUTCOMES = ("agreed", "contradicted", "unknown")


def _outcome(row: HostRow) -> str:
    if row.is_contradiction:
        return "contradicted"
    return "agreed" if row.predicted == row.observed else "unknown"


def _contradiction(
    named: tuple[str, str, str], seen: Sequence[tuple[HostEvidence, StepKind, HostRow]]
) -> ObservedContradiction:
    op, predicted, observed = named
    rows = [row for _, _, row in seen]
    real = {evidence.run for evidence, _, _ in seen if evidence.host.gpu == "real"}
    others = {evidence.run for evidence, _, _ in seen if evidence.host.gpu != "real"}

    def each(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({value for value in values if value}))

    return ObservedContradiction(
        op=op,
        predicted=predicted,
        observed=observed,
        dtypes=each(dtype for row in rows for dtype in row.dtypes),
        kinds=tuple(sorted({kind for _, kind, _ in seen})),
        torch=each(str(Version.parse(evidence.host.torch)) for evidence, _, _ in seen),
        macos=each(_major(evidence.host.macos) for evidence, _, _ in seen),
        real=len(real),
        virtual=len(others),
        subjects=each(row.subject for row in rows),
        count=sum(row.count for row in rows),
        text=min((row.text for row in rows if row.text), default=""),
        line=min((row.line for row in rows if row.line), default=""),
    )


#: By the observed status, the effect of a proposed statement.
_EFFECTS = {"unsupported": "raises", "fallback": "falls_back", "aborts": "aborts", "wrong": "wrong_result"}


def propose(summary: ObservedSummary, lists: OpLists) -> str:
    """Return proposed statements on the contradictions as YAML, which a person judges; empty: there are none.

    An observation that is better than its prediction becomes a comment: it ends or narrows a statement.
    """
    entries: dict[str, list[dict[str, object]]] = {"limitations": [], "advisories": []}
    comments = []
    for each in summary.contradictions:
        if each.observed not in _EFFECTS or "::" not in each.op:
            change, releases = f"predicted {each.predicted}, observed {each.observed}", ", ".join(each.torch)
            comments.append(f"# {each.op}: {change} on torch {releases}\n")
            continue
        effect = _EFFECTS[each.observed]
        where = "; ".join(summary.hosts)
        entry: dict[str, object] = {
            "id": name_statement(each.op, effect.replace("_", "-")),
            "ops": [each.op],
            "effect": effect,
            "torch": {"since": each.torch[0], "until": next_release(Version.parse(each.torch[-1]), lists)},
            "when": "observed with some inputs; the deciding property is unknown",
            "summary": f"{each.op} was predicted {each.predicted}, and was {each.observed} on hosted Macs.",
            "evidence": [{"kind": "measured", "torch": each.torch[-1], "where": where}],
        }
        if each.dtypes:
            entry["dtypes"] = [*each.dtypes]
        entries["advisories" if each.observed == "wrong" else "limitations"].append(entry)
    if not comments and not any(entries.values()):
        return ""
    head = "# Proposed from observations on hosted Macs; a person judges each entry.\n"
    body = {"schema": 1, **{kind: listed for kind, listed in entries.items() if listed}}
    return head + "".join(comments) + yaml.safe_dump(body, sort_keys=False, width=110)


def _json(record: msgspec.Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"
