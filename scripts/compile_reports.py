"""Hold ``opcheck compile`` against public reports: which failures it predicts, and which controls it spares.

    python -m scripts.compile_reports

Runs each program of op_lists/compile_reports.yaml for Metal as its release writes it, with the wheels of the cache,
and writes reports/compile_reports.md and the counts of docs/explanation/compile.md.  A few minutes.
"""

import functools
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import yaml

from examples.models.reported import PROGRAMS, Reported
from opcheck.capture.child.run import AsModule
from opcheck.common.files import write_text
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.data.wheels.inductor import BACKEND
from opcheck.features.compile import compile_records as records
from opcheck.features.compile.child.inductor_metal import preload
from opcheck.features.compile.child.variants import ProgramCall, attempt
from opcheck.features.compile.compile_process import backend
from opcheck.features.compile.target_outcomes import report
from opcheck.tracing.torch_private import compilation
from opcheck.worker.worker import WorkerError, run_forked
from scripts.opinfo.forks import in_processes
from scripts.pages import ROOT, aligned_table, page_text, replace_between

DATA = ROOT / "op_lists" / "compile_reports.yaml"
PAGE = ROOT / "reports" / "compile_reports.md"
DOCS = ROOT / "docs" / "explanation" / "compile.md"
#: The outcomes that warn a user: whatever is not "works".
_WARNS = {"fails": {"fails", "no backend", "died", "one shape only", "needs fallback"}}
_WARNS["wrong"] = {*_WARNS["fails"], "wrong result", "differs"}
_WARNS["fails"] |= {"wrong result"}


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One report."""

    where: str
    torch: str
    program: str
    says: str
    dtype: str = "float32"


class Found(NamedTuple):
    """What opcheck says of a report's program."""

    outcome: str
    because: str


def entries() -> list[Entry]:
    """Read the reports."""
    written = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return msgspec.convert(written["reports"], list[Entry])


def main() -> None:
    """Run every release in a process of its own; write the page."""
    listed = entries()
    results: dict[tuple[str, str, str], Found] = {}
    releases = list(dict.fromkeys(entry.torch for entry in listed))
    for release, rows in zip(releases, in_processes(of_release, releases), strict=True):
        for program, dtype, outcome, because in rows:
            results[release, program, dtype] = Found(outcome, because)
    page, counts = written(listed, results)
    write_text(PAGE, page)
    replace_between(DOCS, "<!-- counts -->\n", "\n<!-- end of counts -->", counts)
    print(counts)


def written(listed: list[Entry], outcome: dict[tuple[str, str, str], Found]) -> tuple[str, str]:
    """Return the page and the sentence with the counts."""
    rows = []
    right, total = Counter[str](), Counter[str]()
    for entry in listed:
        result = outcome[entry.torch, entry.program, entry.dtype]
        kind = "controls" if entry.says == "works" else "failures"
        predicted = result.outcome in _WARNS.get(entry.says, {"works"})
        total[kind] += 1
        right[kind] += predicted
        name = "/".join(entry.where.removeprefix("https://github.com/").split("/")[:2])
        number = entry.where.rpartition("/")[2]
        cells = (entry.torch, entry.program, entry.says, result.outcome, "yes" if predicted else "**no**")
        rows.append((f"[{name}#{number}]({entry.where})", *cells, result.because))
    counts = (
        f"Of {total['failures']} reported failures {right['failures']} are predicted; of "
        f"{total['controls']} programs that are reported to work {right['controls']} are left without a warning."
    )
    head = ("report", "torch", "program", "it says", "opcheck compile", "predicted", "because")
    return page_text("compile_reports", counts=counts, table=aligned_table(head, rows)), counts


def of_release(line: str) -> list[tuple[str, str, str, str]]:
    """Run the programs that are reported of a release; program, dtype, outcome and reason of each."""
    judge = judge_for(line)
    results = []
    wanted = dict.fromkeys((e.program, e.dtype) for e in entries() if e.torch == line)
    for name, dtype in wanted:
        judged = judge(name, records.Variant(backend="inductor", metal=True, dtype=dtype))
        group = next((g for g in judged.failures if not g.mended), None)
        because = group.message.partition("\n")[0][:160].replace("|", "/") if group else ""
        results.append((name, dtype, judged.compiled.tried[0].outcome, because))
    return results


def judge_for(line: str) -> Callable[[str, records.Variant], records.CompileReport]:
    """Let Inductor write Metal as this release does; return what tries a program of ``PROGRAMS`` as a variant.

    To be called once in a process, before Inductor is imported.
    """
    warnings.simplefilter("ignore")
    lists = load()
    own = backend(lists.release(line))
    if own.problem:
        raise SystemExit(own.problem)
    if own.folder:
        compilation.use_metal_backend(Path(own.folder) / BACKEND)
    preload()
    target = Target(torch=Version.parse(line), macos=Version(26 if Version.parse(line) >= Version(2, 9) else 15))

    def judge(name: str, variant: records.Variant) -> records.CompileReport:
        reported = PROGRAMS[name]
        variant = msgspec.structs.replace(
            variant, training=reported.training, dynamic=variant.dynamic or reported.dynamic
        )
        try:
            tried = run_forked(functools.partial(_attempt, reported, variant), records.TriedVariant, 120.0)
        except WorkerError as error:
            failure = records.CompileFailure(kind="died", message=str(error))
            tried = records.TriedVariant(variant=variant, outcome="died", failure=failure)
        compiled = records.CompiledVariants(
            model=name, installed_torch=str(torch.__version__), metal_backend=own.release, device="cpu", tried=(tried,)
        )
        return report(compiled, target, lists, "")

    return judge


def _attempt(reported: Reported, variant: records.Variant) -> records.TriedVariant:
    torch.manual_seed(0)
    made: Any = reported.make()
    module = made if isinstance(made, torch.nn.Module) else AsModule(made)
    return attempt(ProgramCall(module, reported.inputs(), {}), variant)


if __name__ == "__main__":
    main()
