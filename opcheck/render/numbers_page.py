"""The calls that the release's own kernels computed a second time, as tables, for the formats for people."""

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.model.records import KernelNumbers
from opcheck.render.document import Block, Bullets, Heading, Table

#: Rows that are seen at once.
_ROWS = 12


def blocks(run: KernelNumbers) -> Iterator[Block]:
    """Make the section of a run: the wrong lines, and what was not computed by kernels and why."""
    yield Heading(
        f"Numbers: the Metal kernels of torch {run.torch} on this machine's CPU ({run.mode})"
    )
    wrong = tuple(
        (
            line.op,
            line.place.line,
            line.kernel,
            f"{line.elements:,} of {line.compared:,}",
            f"{float(line.error):.1e}",
            line.mended or "-",
            ", ".join(line.statements) or "-",
        )
        for line in run.wrong
    )
    if wrong:
        headers = ("operator", "line", "kernel", "wrong", "error", "right in", "statements")
        yield Table(headers, wrong, code=(0, 2), right=(3, 4), shown=_ROWS)
    rest = tuple(
        (f"{each.calls:,}", each.op, f"{each.elements:,}", each.reason) for each in run.unchecked
    )
    if rest:
        titles = ("calls", "operator", "elements", "not computed by kernels, because")
        yield Table(titles, rest, code=(1,), right=(0, 2), shown=_ROWS)
    drawn = f"samples are drawn by the seed {run.seed}"
    yield Bullets((*run.notes, f"{plural(run.calls.checked, 'call')} computed; {drawn}"))
