"""The answer to ``opcheck kernels`` as text."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from opcheck.common.grouping import group_values
from opcheck.common.names import DTYPES
from opcheck.common.text import plural
from opcheck.kernels import kernel_names
from opcheck.kernels.air import KernelParameter
from opcheck.kernels.kernel_records import VERDICTS, KernelOutcome, KernelRun, Sample, Verdict, extent
from opcheck.kernels.library import CataloguedKernel, Changes, Library
from opcheck.render.document import Document, Heading, Lines, Table, section

_MOST = 40
_ORDER = {name: place for place, name in enumerate(DTYPES)}


def operations(library: Library, kernels: Sequence[str]) -> str:
    """Return the operations of the kernels with these names: their number and their dtypes."""
    counts: dict[str, int] = defaultdict(int)
    dtypes: dict[str, set[str]] = defaultdict(set)
    for name in kernels:
        named = kernel_names.parse(name)
        counts[named.operation] += 1
        dtypes[named.operation] |= {dtype for dtype in named.dtypes if dtype in _ORDER}
    width = max(map(len, counts))
    lines = [
        f"  {operation.ljust(width)}  {counts[operation]:>5}  "
        f"{' '.join(sorted(dtypes[operation], key=_ORDER.__getitem__))}".rstrip()
        for operation in sorted(counts)
    ]
    return "\n".join([_head(library, len(kernels)), "", *lines])


def list_kernels(library: Library, entries: Sequence[CataloguedKernel], *, in_full: bool) -> str:
    """Return each kernel: with its arguments, or with their names alone on its line."""
    lines = [_head(library, len(entries))]
    if not in_full:
        width = max(len(entry.name) for entry in entries)
        return "\n".join([*lines, "", *(_line(entry, width) for entry in entries)])
    for entry in entries:
        form = f", {entry.form}" if entry.form else ""
        lines += [
            "",
            entry.name,
            f"  {entry.operation}{form}: {', '.join(entry.dtypes) or 'no dtype in the name'}",
            *(f"    {_argument(argument)}" for argument in entry.arguments),
        ]
    return "\n".join(lines)


def _line(entry: CataloguedKernel, width: int) -> str:
    buffers = ", ".join(argument.name for argument in entry.arguments if argument.is_buffer)
    return f"  {entry.name.ljust(width)}  {' '.join(entry.dtypes)} ({buffers})"


def _head(library: Library, shown: int) -> str:
    every = len(library.functions)
    share = f"{shown:,} of " if shown != every else ""
    return f"torch {library.torch}, {library.section}: {share}{plural(every, 'kernel')}"


def _argument(argument: KernelParameter) -> str:
    kind = argument.kind.removeprefix("air.")
    if not argument.is_buffer:
        return f"{argument.name}: {kind}"
    size = f", {argument.size} bytes" if argument.size else ""
    access = "written" if argument.written else "read"
    fields = f" {{{', '.join(field.name for field in argument.fields)}}}" if argument.fields else ""
    return f"{argument.name}: {kind} {argument.location}, {access}, {argument.type}{size}{fields}"


def list_changes(old: Library, new: Library, changes: Changes) -> str:
    """Return what differs, by operation."""
    lines = [
        f"torch {old.torch} -> {new.torch}, {new.section}",
        f"{len(changes.new):,} new, {len(changes.gone):,} gone, {len(changes.changed):,} changed",
        f"{changes.same:,} of the same code",
    ]
    for title in ("new", "gone", "changed"):
        kernels: tuple[str, ...] = getattr(changes, title)
        counts = Counter(kernel_names.parse(name).operation for name in kernels)
        names = (f"{name}: {plural(count, 'kernel')}" for name, count in sorted(counts.items()))
        shown = kernels if len(kernels) <= _MOST else names
        lines += ["", title, *(f"  {text}" for text in shown)] if kernels else []
    return "\n".join(lines)


#: The verdicts that depend on choices that Metal leaves open.
DEPENDING: tuple[Verdict, ...] = ("depends on fusing", "depends on flushing")
WRONG_COLUMNS = (
    *("operation", "dtype", "kernels", "smallest input", "result", "expected", "off by"),
    *("wrong inputs", "of usual inputs", "worst", "since"),
)
_NOTE = (
    "The kernels ran on this CPU: mathematical functions are this machine's, evaluated in double. "
    "A wrong result here comes from the kernel's code; a right result may still differ on a GPU."
)


def document(run: KernelRun) -> Document:
    """Yield the counts by family, the wrong ones by operation with the smallest input, and why not run."""
    counts = Counter(outcome.verdict for outcome in run.outcomes)
    shown = [verdict for verdict in VERDICTS if counts[verdict]]
    verdicts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in shown)
    ended = f"{run.ended} ended the run: {run.lacking:,} kernels were not run"
    kernels = f"{plural(len(run.outcomes), 'kernel')}: {verdicts}; {run.seconds:,.0f} seconds"
    yield Heading(f"Metal kernels of torch {run.torch} ({run.section}), run on a CPU", 1)
    yield Lines((kernels, *([ended] if run.ended else []), _NOTE))
    families = group_values((outcome.family, outcome) for outcome in run.outcomes)
    yield Heading("By family")
    rows = (_family(name, families[name], shown) for name in sorted(families))
    yield Table(("family", "run", *shown, "seconds"), tuple(rows), (0,))
    depending = [(verdict, f"Results whose verdict {verdict}") for verdict in DEPENDING]
    for name, title in (("wrong", "Wrong results"), *depending):
        wrong = [outcome for outcome in run.outcomes if outcome.verdict == name]
        yield from section(title, Table(WRONG_COLUMNS, tuple(_wrong(wrong)), (0, 1)))
    reasons = Counter((o.family, o.reason) for o in run.outcomes if o.verdict == "not run")
    why = tuple((f, str(count), reason) for (f, reason), count in sorted(reasons.items()))
    yield from section("Not run", Table(("family", "kernels", "why"), why, (0,)))


def _family(name: str, group: Sequence[KernelOutcome], shown: Sequence[Verdict]) -> tuple[str, ...]:
    counts = Counter(outcome.verdict for outcome in group)
    run = len(group) - counts["not run"]
    seconds = sum(outcome.seconds for outcome in group)
    return (name, str(run), *(str(counts[verdict]) for verdict in shown), f"{seconds:.1f}")


def _wrong(outcomes: Sequence[KernelOutcome]) -> Iterable[tuple[str, ...]]:
    """Make a row for each operation and operand dtype: the first kernel's smallest input."""
    by_source: dict[tuple[str, str], list[KernelOutcome]] = defaultdict(list)
    for outcome in outcomes:
        source = outcome.dtypes[1] if len(outcome.dtypes) > 1 else " ".join(outcome.dtypes)
        by_source[outcome.operation, source].append(outcome)
    for (operation, source), group in sorted(by_source.items()):
        samples = [outcome.smallest for outcome in group if outcome.smallest]
        sample = next((sample for sample in samples if sample.gross), samples[0])
        yield (
            *(operation, source, str(len(group)), ", ".join(sample.inputs)),
            *(sample.result, sample.expected, "all of it" if sample.gross else "digits"),
            *extent(group),
            next((outcome.since for outcome in group if outcome.since), ""),
        )


#: The columns of a table of outcomes.
COLUMNS = (
    *("torch", "section", "kernel", "family", "operation", "dtypes", "verdict", "compared", "wrong"),
    *("ulps", "inputs", "result", "expected", "gross", "reason", "seconds"),
)


def rows(run: KernelRun) -> dict[str, list[Any]]:
    """Make the columns of a Parquet file, one row a kernel."""
    values = [_row(run, outcome) for outcome in run.outcomes]
    return {name: [row[name] for row in values] for name in COLUMNS}


def _row(run: KernelRun, outcome: KernelOutcome) -> dict[str, Any]:
    sample = outcome.smallest or Sample(inputs=(), result="", expected="", gross=False)
    named = {"torch": run.torch, "section": run.section, "dtypes": list(outcome.dtypes), "inputs": list(sample.inputs)}
    return asdict(outcome) | asdict(sample) | named
