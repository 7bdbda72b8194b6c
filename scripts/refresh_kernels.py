"""Write reports/kernels.md from runs of the released Metal kernels.

Usage: python scripts/refresh_kernels.py RUN.json ...

A run is what ``opcheck kernels test --torch 2.15 -o RUN.json`` wrote; the newest release is shown in full.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opcheck.common.versions import Version
from opcheck.data.registrations import data_directory
from opcheck.data.statement_files import read_statements
from opcheck.kernels.records import VERDICTS, Outcome, Run
from opcheck.render.document import Document, Heading, Lines, Table
from opcheck.render.markdown import as_markdown

FINDINGS = Path(__file__).with_name("kernel_findings.yaml")
REPORT = Path(__file__).parent.parent / "reports" / "kernels.md"
_HEAD = (
    "The Metal kernels of the released macOS wheels, run on a CPU by opcheck kernels test.",
    "The mathematical functions are this machine's, evaluated in double; what is wrong here is",
    "wrong by the kernel's own code. What MPSGraph computes is not in it. No Mac was there.",
    "Seconds are of the clock, with two processes on two cores and kernels that were compiled before.",
    "Made by scripts/refresh_kernels.py; do not edit.",
)


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands for the wrong results of an operation: a statement's id, or why there is none."""

    operation: str
    dtypes: tuple[str, ...]
    statement: str = ""
    why_none: str = ""


def findings() -> dict[tuple[str, str], str]:
    """Return the statement or the reason by operation and dtype."""
    written = msgspec.yaml.decode(FINDINGS.read_bytes(), type=list[Finding])
    return {
        (finding.operation, dtype): finding.statement or f"none: {finding.why_none}"
        for finding in written
        for dtype in finding.dtypes
    }


def document(runs: list[Run]) -> Document:
    """The counts by release and family, and what is wrong, with the releases in which it is."""
    newest = runs[-1]
    return (
        Heading("Metal kernels by release", 1),
        Lines(_HEAD),
        Heading("By release"),
        Table(("torch", "kernels", *VERDICTS, "seconds"), tuple(map(_totals, runs)), (0,)),
        Heading("By release and family"),
        Table(("torch", "family", "kernels", *VERDICTS), tuple(_counts(runs)), (0, 1)),
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
                "operation",
                "dtype",
                "input",
                "result",
                "expected",
                "off by",
                "wrong in",
                "stated by",
            ),
            tuple(_wrong(runs)),
            (0, 1),
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


def _totals(run: Run) -> tuple[str, ...]:
    counts = Counter(outcome.verdict for outcome in run.outcomes)
    counted = (f"{counts[verdict]:,}" for verdict in VERDICTS)
    return (run.torch, f"{counts.total():,}", *counted, f"{run.seconds:,.0f}")


def _counts(runs: Iterable[Run]) -> Iterable[tuple[str, ...]]:
    for run in runs:
        families: dict[str, Counter[str]] = defaultdict(Counter)
        for outcome in run.outcomes:
            families[outcome.family][outcome.verdict] += 1
        for family, counts in sorted(families.items()):
            yield (
                *(run.torch, family, str(counts.total())),
                *(str(counts[verdict]) for verdict in VERDICTS),
            )


def _key(outcome: Outcome) -> tuple[str, str]:
    return outcome.operation, outcome.dtypes[1 if len(outcome.dtypes) > 1 else 0]


def _wrong(runs: list[Run]) -> Iterable[tuple[str, ...]]:
    result: dict[tuple[str, str], dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for outcome in run.outcomes:
            if outcome.smallest is not None:
                result[_key(outcome)][run.torch].append(outcome)
    stated = findings()
    for (operation, dtype), releases in sorted(result.items()):
        if runs[-1].torch not in releases:
            continue
        samples = [o.smallest for o in releases[runs[-1].torch] if o.smallest is not None]
        sample = next((sample for sample in samples if sample.gross), samples[0])
        yield (
            *(operation, dtype, ", ".join(sample.inputs), sample.result, sample.expected),
            *("all of it" if sample.gross else "digits", " ".join(releases)),
            stated.get((operation, dtype), "open"),
        )


def main() -> None:
    """Read the runs, and write the report."""
    runs: dict[str, Run] = {}
    for name in sys.argv[1:]:
        run = msgspec.json.decode(Path(name).read_bytes(), type=Run)
        known = runs.get(run.torch)
        outcomes = (*(known.outcomes if known else ()), *run.outcomes)
        seconds = run.seconds + (known.seconds if known else 0)
        runs[run.torch] = msgspec.structs.replace(run, outcomes=outcomes, seconds=seconds)
    ordered = sorted(runs.values(), key=lambda run: Version.parse(run.torch))
    REPORT.write_text(as_markdown(document(ordered)), encoding="utf-8")


if __name__ == "__main__":
    main()
