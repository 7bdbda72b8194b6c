"""Write reports/kernels.md from runs of the released Metal kernels.

Usage: python scripts/refresh_kernels.py RUN.json ...

A run is what ``opcheck kernels test --torch 2.15 -o RUN.json`` wrote; the newest release is shown in full.
"""

import functools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opcheck.common.versions import Version
from opcheck.data.registrations import data_directory
from opcheck.data.statement_files import read_statements
from opcheck.kernels.kernel_names import POINTWISE, WORDS
from opcheck.kernels.kernel_records import VERDICTS, KernelOutcome, KernelRun, extent
from opcheck.render.document import Document, Heading, Lines, Table
from opcheck.render.markdown import as_markdown
from scripts.pages import ROOT, page_text

FINDINGS = Path(__file__).with_name("kernel_findings.yaml")
_MADE = "Made by scripts/refresh_kernels.py; do not edit."
REPORT = ROOT / "reports" / "kernels.md"


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands for the wrong results of an operation: a statement's id, or why there is none."""

    operation: str
    dtypes: tuple[str, ...]
    statement: str = ""
    why_none: str = ""
    #: a defect all the same that no statement can say
    is_defect: bool = False


@functools.cache
def _read() -> dict[tuple[str, str], Finding]:
    """Read the findings by operation and dtype."""
    listed = msgspec.yaml.decode(FINDINGS.read_bytes(), type=list[Finding])
    return {(finding.operation, dtype): finding for finding in listed for dtype in finding.dtypes}


def findings() -> dict[tuple[str, str], str]:
    """Return the statement or the reason by operation and dtype."""
    return {key: finding.statement or f"none: {finding.why_none}" for key, finding in _read().items()}


def document(runs: list[KernelRun]) -> Document:
    """The counts by release and family, and what is wrong, with the releases in which it is."""
    newest = runs[-1]
    return (
        Heading("Metal kernels by release", 1),
        Lines((*page_text("kernels").splitlines(), *_of_what(runs), _MADE)),
        Heading("By release"),
        Table(("torch", "kernels", *_COUNTED, "seconds"), tuple(map(_totals, runs)), (0,)),
        Heading("By release and family"),
        Table(("torch", "family", "kernels", *_COUNTED), tuple(_counts(runs)), (0, 1)),
        Heading("Advisories"),
        Lines(_advisories()),
        Heading(f"Wrong results of torch {newest.torch}"),
        Lines(
            (
                "Of each operation and dtype the simplest input, the releases that have it,",
                "and the statement of the op lists that says so, or why none does.",
            )
        ),
        Table(
            (
                *("operation", "dtype", "input", "result", "expected", "off by", "wrong inputs"),
                *("of inputs from 1e-3 to 1e3", "worst", "wrong in", "stated by"),
            ),
            tuple(_wrong(runs)),
            (0, 1),
        ),
        Heading(f"Verdicts of torch {newest.torch} that hang on fusing or flushing"),
        Table(
            ("operation", "dtype", "kernels", "input", "result", "expected", "verdict"), tuple(_hanging(newest)), (0, 1)
        ),
    )


#: Evidence that somebody else has seen the wrong result.
_PUBLIC = frozenset(["issue", "pr"])


def _advisories() -> tuple[str, ...]:
    """How many of the op lists' statements rest on a run of a kernel, and which of them nobody had reported."""
    run = [
        statement
        for statement in read_statements(data_directory())
        if any(entry.kind == "kernel-run" for entry in statement.evidence)
    ]
    unknown = [s.id for s in run if not any(entry.kind in _PUBLIC for entry in s.evidence)]
    return (
        f"{len(run)} advisories of the op lists have a run of a kernel as evidence.",
        f"Of {len(unknown)} of them no public report was known when they were written: {', '.join(sorted(unknown))}.",
    )


#: The verdicts, and what is wrong by a formula that is no defect.
_COUNTED = (*VERDICTS, "no defect")


def _count(outcomes: Iterable[KernelOutcome]) -> Counter[str]:
    """Count the verdicts; a wrong result that has a reason is no defect, unless the finding says otherwise."""
    none = {key for key, finding in _read().items() if finding.why_none and not finding.is_defect}
    return Counter(
        "no defect" if outcome.verdict == "wrong" and _key(outcome) in none else outcome.verdict for outcome in outcomes
    )


def _hanging(run: KernelRun) -> Iterable[tuple[str, ...]]:
    groups: dict[tuple[str, str, str], list[KernelOutcome]] = defaultdict(list)
    for outcome in run.outcomes:
        if outcome.verdict.startswith("depends"):
            groups[(*_key(outcome), outcome.verdict)].append(outcome)
    for (operation, dtype, verdict), group in sorted(groups.items()):
        sample = next(o.smallest for o in group if o.smallest)
        yield (
            *(operation, dtype, str(len(group)), ", ".join(sample.inputs)),
            *(sample.result, sample.expected, verdict),
        )


def _totals(run: KernelRun) -> tuple[str, ...]:
    counts = _count(run.outcomes)
    counted = (f"{counts[verdict]:,}" for verdict in _COUNTED)
    seconds = sum(outcome.seconds for outcome in run.outcomes)
    return (run.torch, f"{counts.total():,}", *counted, f"{seconds:,.0f}")


def _of_what(runs: Iterable[KernelRun]) -> Iterable[str]:
    """Yield a line for each run that lacks kernels, or has the pointwise families alone."""
    for run in runs:
        if run.lacking:
            yield f"Of torch {run.torch} {run.lacking:,} kernels were not run: the run was ended."
        if {outcome.family for outcome in run.outcomes} <= set(POINTWISE):
            yield f"Of torch {run.torch} only the families {', '.join(POINTWISE)} were run."


def _counts(runs: Iterable[KernelRun]) -> Iterable[tuple[str, ...]]:
    for run in runs:
        families: dict[str, list[KernelOutcome]] = defaultdict(list)
        for outcome in run.outcomes:
            families[outcome.family].append(outcome)
        for family, outcomes in sorted(families.items()):
            counts = _count(outcomes)
            yield (*(run.torch, family, str(counts.total())), *(str(counts[verdict]) for verdict in _COUNTED))


#: Names of attention's kernels, whose dtypes stand in their middle.
_ATTENTION = re.compile(r"(prefill_attention|sdpa_vector(?:_2pass_[12])?)_([a-z]+\d*)_.*")


def _key(outcome: KernelOutcome) -> tuple[str, str]:
    if match := _ATTENTION.fullmatch(outcome.kernel):
        return match[1], WORDS[match[2]]
    return outcome.operation, next(iter((*outcome.dtypes[1:2], *outcome.dtypes)), "any")


def _wrong(runs: list[KernelRun]) -> Iterable[tuple[str, ...]]:
    result: dict[tuple[str, str], dict[str, list[KernelOutcome]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for outcome in run.outcomes:
            if outcome.verdict == "wrong":
                result[_key(outcome)][run.torch].append(outcome)
    stated = findings()
    for (operation, dtype), releases in sorted(result.items()):
        if runs[-1].torch not in releases:
            continue
        samples = [o.smallest for o in releases[runs[-1].torch] if o.smallest is not None]
        sample = next((sample for sample in samples if sample.gross), samples[0])
        yield (
            *(operation, dtype, ", ".join(sample.inputs), sample.result, sample.expected),
            "all of it" if sample.gross else "digits",
            *extent(releases[runs[-1].torch]),
            " ".join(releases),
            stated.get((operation, dtype), "open"),
        )


def main() -> None:
    """Read the runs, and write the report."""
    runs: dict[str, KernelRun] = {}
    for name in sys.argv[1:]:
        run = msgspec.json.decode(Path(name).read_bytes(), type=KernelRun)
        known = runs.get(run.torch)
        outcomes = (*(known.outcomes if known else ()), *run.outcomes)
        seconds = run.seconds + (known.seconds if known else 0)
        runs[run.torch] = msgspec.structs.replace(run, outcomes=outcomes, seconds=seconds)
    ordered = sorted(runs.values(), key=lambda run: Version.parse(run.torch))
    REPORT.write_text(as_markdown(document(ordered)), encoding="utf-8")


if __name__ == "__main__":
    main()
