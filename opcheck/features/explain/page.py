"""The page of a limitation or an advisory, and the short form of all pages of ``opcheck explain``."""

import re
import textwrap
from collections.abc import Iterator

from opcheck.common import catalogue
from opcheck.common.text import and_more
from opcheck.common.versions import Span
from opcheck.data.messages import fill_text
from opcheck.data.statement_model import Statement, program_text
from opcheck.features import documents
from opcheck.judge import remedies

#: Operators that a page names; the rest is counted.
_OPERATORS = 6


#: The sections of a short page: of a rule, of a remedy, of a statement.
_FIRST = re.compile(r"\*\*(What|Way out|Fix|Operators|Effect|Releases|Dtypes|Holds if|Depends on|Prints)\.\*\*")
_WAY_OUT = re.compile(r"\*\*(Way out|Fix|Effect)\.\*\*")
#: Of a page whose code says what to do.
_WITH_CODE = re.compile(r"\*\*(What|For|After)\.\*\*")
_COLUMNS = 100
#: Columns of a list of names.
_NAMES = 96
#: The name that ``explain`` takes for the schema of ``-f json`` and ``-f yaml``.
SCHEMA = "schema"
_LINES = 12


def shorten(text: str) -> str:
    """Return the sections of a page that say what it is and what to do, in at most 15 lines."""
    title, *paragraphs = text.strip().split("\n\n")
    lines: list[str] = [title, ""]
    first = _FIRST if any(map(_WAY_OUT.match, paragraphs)) else _WITH_CODE
    is_shown = False
    for paragraph in paragraphs:
        is_code = paragraph.startswith("```")
        if not paragraph.startswith(("```", "- ")):
            is_shown = bool(first.match(paragraph))
        if is_shown:
            lines += paragraph.splitlines() if is_code else textwrap.wrap(" ".join(paragraph.split()), _COLUMNS)
    cut = [*lines[: _LINES - 1], "..."] if len(lines) > _LINES else lines
    return "\n".join([*cut, "", "More, with examples and evidence: -v."]) + "\n"


def page(statement: Statement) -> str:
    """Return the page of one statement, as Markdown."""
    return "\n".join([f"# {statement.id}: {statement.summary}", "", *_lines(statement)]) + "\n"


def _lines(statement: Statement) -> Iterator[str]:
    rests = f"{statement.when}; a run on shapes cannot determine it" if statement.when else ""
    rows = {
        "Operators": and_more(statement.ops, _OPERATORS),
        "Effect": statement.effect.replace("_", " "),
        "Releases": f"torch {_span(statement.torch)}; macOS {_span(statement.macos)}",
        "Dtypes": ", ".join(statement.dtypes),
        "Holds if": f"`{statement.condition}`" if statement.condition else "",
        "Depends on": rests,
        "Prints": fill_text(statement.error.text) if statement.error else "",
        "Way out": statement.way_out,
    }
    yield from (f"**{name}.** {text}\n" for name, text in rows.items() if text)
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


def overview() -> Iterator[str]:
    """Yield the lines of the short overview: the codes by verb, and the other pages."""
    for title, (first, *rest) in catalogue.groups().items():
        last = f" to {rest[-1].id}" if rest else ""
        yield f"{title}: {len(rest) + 1}, {first.id}{last}"
    yield f"Remedies: {len(remedies.REMEDIES)}, such as {', '.join([*remedies.BY_ID][:4])}"
    yield f"Formats: {SCHEMA} for the JSON schema of a report, {SCHEMA} NAME for another document"
    yield ""
    yield "opcheck explain CODE shows a page, also of a limitation or an advisory; -v lists all names"


def list_names() -> Iterator[str]:
    """Yield the lines of the overview: the rules by verb, the remedies, and the other pages."""
    for title, rules in catalogue.groups().items():
        yield title
        yield from (f"  {rule.id}  {rule.severity:<8} {rule.title}" for rule in rules)
        yield ""
    width = max(map(len, remedies.BY_ID))
    yield "Remedies"
    yield from (f"  {remedy.id:<{width}}  {remedy.title}" for remedy in remedies.REMEDIES)
    yield ""
    yield "Formats"
    yield f"  {SCHEMA:<{width}}  JSON schema of a report; schema NAME of another document:"
    _, *others = documents()
    for line in textwrap.wrap(", ".join(others), _NAMES - width):
        yield f"  {'':<{width}}  {line}"
    yield ""
    yield "opcheck explain CODE shows a page, also of a limitation or an advisory of the op lists"
