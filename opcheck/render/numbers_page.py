"""The calls that the release's own kernels computed a second time, as tables, for the formats for people."""

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.model.records import KernelNumbers
from opcheck.render.document import Block, Bullets, Column, Heading, table_of

#: Rows that are seen at once.
_ROWS = 12
_WRONG: dict[str, Column] = {
    "operator": "op",
    "line": lambda line: line.place.line,
    "kernel": "kernel",
    "wrong": lambda line: f"{line.elements:,} of {line.compared:,}",
    "error": lambda line: f"{float(line.error):.1e}",
    "right in": lambda line: line.mended or "-",
    "statements": lambda line: ", ".join(line.statements) or "-",
}
_UNCHECKED = {"calls": "calls:,", "operator": "op", "elements": "elements:,"} | {
    "not computed by kernels, because": "reason"
}


def blocks(run: KernelNumbers) -> Iterator[Block]:
    """Make the section of a run: the wrong lines, and what was not computed by kernels and why."""
    kernels = f"the Metal kernels of torch {run.torch}"
    yield Heading(f"Numbers: {kernels} on this machine's CPU ({run.mode})")
    if run.wrong:
        yield table_of(run.wrong, _WRONG, code=(0, 2), right=(3, 4), shown=_ROWS)
    if run.unchecked:
        yield table_of(run.unchecked, _UNCHECKED, code=(1,), right=(0, 2), shown=_ROWS)
    drawn = f"samples are drawn by the seed {run.seed}"
    yield Bullets((*run.notes, f"{plural(run.calls.checked, 'call')} computed; {drawn}"))
