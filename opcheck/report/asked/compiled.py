"""What ``opcheck compile`` found, as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcheck.compile.plan import DTYPES
from opcheck.report.asked.document import Block, Bullets, Document, Heading, Lines, Table
from opcheck.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.compile.records import Tried
    from opcheck.compiled import CompileReport, FailureGroup


def document(report: CompileReport) -> Document:
    """The page: what to use first, then the table, then why."""
    return tuple(_blocks(report))


def _blocks(report: CompileReport) -> Iterator[Block]:
    target = f"torch {report.target['torch']}, macOS {report.target['macos']}"
    yield Heading(f"{report.model} compiled for {target}", 1)
    yield Lines((f"{report.advice}.",))
    yield Heading("Variants")
    dtypes = [d for d in DTYPES if any(d in row.outcomes for row in report.rows)]
    dtypes += sorted({d for row in report.rows for d in row.outcomes} - {*DTYPES})
    yield Table(
        ("variant", "run", *dtypes),
        tuple(
            (row.variant, row.run, *(row.outcomes.get(dtype, "-") for dtype in dtypes))
            for row in report.rows
        ),
    )
    if report.failures:
        yield Heading("Failures")
        yield Bullets(tuple(_failure(group) for group in report.failures))
    yield from _dynamo(report)
    if report.kernels:
        yield Heading("Metal")
        externs = plural(len(report.externs), "operator")
        yield Lines((f"{plural(report.kernels, 'kernel')}; {externs} called eagerly beside them",))
        if report.externs:
            yield Table(
                ("operator", "on the target", "line"),
                tuple((one.op, one.status, one.line) for one in report.externs),
                code=(0,),
            )
    yield Heading("Not checked")
    yield Bullets(report.not_checked)


def _failure(group: FailureGroup) -> str:
    where = f" at {group.line}" if group.line else ""
    op = f" [{group.op}]" if group.op else ""
    ours = " (opcheck's own way of compiling, not PyTorch's)" if group.ours else ""
    text = f": {group.text}" if group.text else ""
    return f"{group.message}{op}{where}{text}{ours} -- {', '.join(group.variants)}"


def _dynamo(report: CompileReport) -> Iterator[Block]:
    breaks: dict[str, None] = {}
    recompiles: dict[str, None] = {}
    empty = []
    for tried in report.compiled.tried:
        breaks |= dict.fromkeys(_breaks(tried))
        recompiles |= dict.fromkeys(one.guard for one in tried.recompiles)
        if tried.outcome == "nothing compiled":
            empty.append(str(tried.variant))
    if empty:
        yield Heading("Nothing compiled")
        names = ", ".join(dict.fromkeys(empty))
        yield Lines((f"0 graphs: the program ran as without torch.compile, with {names}",))
    if breaks:
        yield Heading("Graph breaks")
        yield Bullets(tuple(breaks))
    if recompiles:
        yield Heading("Compiled again")
        yield Bullets(tuple(recompiles))


def _breaks(tried: Tried) -> Iterator[str]:
    for one in tried.breaks:
        where = f" at {one.location}: {one.location.text}" if one.location else ""
        yield f"{one.id} {one.reason}{where}".strip()
