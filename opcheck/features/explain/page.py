"""``opcheck explain ID`` for a limitation or advisory: what is known of it, and a program that shows it on a Mac."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.text import and_more
from opcheck.common.versions import Span
from opcheck.data.messages import filled
from opcheck.data.statement_model import Statement, program_text

#: Operators that a page names; the rest is counted.
_OPERATORS = 6


def page(statement: Statement) -> str:
    """Return the page of one statement, as Markdown."""
    return "\n".join([f"# {statement.id}: {statement.summary}", "", *_lines(statement)]) + "\n"


def _lines(statement: Statement) -> Iterator[str]:
    rows = (
        ("Operators", and_more(statement.ops, _OPERATORS)),
        ("Effect", statement.effect.replace("_", " ")),
        ("Releases", f"torch {_span(statement.torch)}; macOS {_span(statement.macos)}"),
        ("Dtypes", ", ".join(statement.dtypes)),
        ("Holds if", f"`{statement.condition}`" if statement.condition else ""),
        (
            "Depends on",
            f"{statement.when}; a run on shapes cannot determine it" if statement.when else "",
        ),
        ("Prints", filled(statement.error.text) if statement.error else ""),
        ("Way out", statement.way_out),
    )
    yield from (f"**{name}.** {text}\n" for name, text in rows if text)
    if statement.program:
        yield "This program prints `right` or `wrong` on a Mac; it has not been run on a Mac:\n"
        yield f"```python\n{program_text(statement.program)}```\n"
    yield "**Evidence.**\n"
    for entry in statement.evidence:
        where = f"{entry.where}:{entry.line}" if entry.line else entry.where
        parts = (f"torch {entry.torch}" if entry.torch else "", where, entry.detail)
        yield f"- {entry.kind}: {'; '.join(filter(None, parts))}"


def _span(span: Span) -> str:
    if span.since is None and span.until is None:
        return "of every version"
    since = f"from {span.since} on" if span.since else "from the first"
    return f"{since}, until before {span.until}" if span.until else since
