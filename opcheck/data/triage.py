"""What a person concluded of each text that the wheels contain, and of each public report: texts.yaml, reports.yaml.

A text of op_lists/extracted/texts.json is accounted for by a statement that quotes it, or by an
entry here that gives the reason why there is none.  What neither accounts for is open.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from opcheck.data.history import SCHEMA, Entry, expand
from opcheck.data.statement_model import Statement
from opcheck.data.strict_yaml import FileProblem, read_entries
from opcheck.data.tables import ListFile
from opcheck.model.records import Record

FILE = "texts.yaml"
REPORTS = "reports.yaml"
#: The command that reads the texts out of the wheels into the folder, for this review only.
MADE_BY = "python -m scripts.extract_limits"
DIRECTORY = "extracted"
#: The placeholder in a statement's text for a value that C++ inserts.
_ASSERTION = re.compile(
    r'.* INTERNAL ASSERT FAILED at "[^"]*":[^,]*, please report a bug to PyTorch\. ?'
)
_VALUE = re.compile(r"\{[^{}]*\}")
#: A shorter piece occurs in any library, and may be an immediate operand instead of a string.
_LONG = 6
#: Messages of many kinds contain a shorter text: only a statement with the same piece accounts for it.
_ENOUGH = 12


#: The first release line with it, and the first without it.
HalfOpen = tuple[str, str | None]
#: Where a text is printed, in the newest release that has it there: file, function, line; and in which releases.
Place = tuple[str | None, str | None, int | None, tuple[HalfOpen, ...]]
#: In place of the overloads that lead to a function: too many to name.
SHARED = "*"


class Extracted(Record, frozen=True, forbid_unknown_fields=True):
    """The texts that MPS sources print, as the wheels contain them."""

    schema: int
    #: the release lines whose wheels were read, in order.
    releases: tuple[str, ...]
    texts: dict[str, tuple[Place, ...]]
    #: by function and release the overloads whose kernels lead to it.
    operators: dict[str, tuple[Entry, ...]]


class PrintedText(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text that several functions print, and those that a reason covers."""

    text: str
    functions: tuple[str | None, ...]


class Reason(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts without a statement, and why there is none."""

    why: str
    #: a text alone: a single function prints it.
    texts: tuple[str | PrintedText, ...]


def list_spanned(spans: Iterable[HalfOpen], releases: Sequence[str]) -> list[str]:
    """Return the release lines in the spans."""
    lines: list[str] = []
    for since, until in spans:
        end = len(releases) if until is None else releases.index(until)
        lines += releases[releases.index(since) : end]
    return lines


TEXTS = ListFile(
    f"{DIRECTORY}/texts.json", Extracted, made_by=MADE_BY, missing=Extracted(SCHEMA, (), {}, {})
)


def fragments(text: str) -> tuple[str, ...]:
    """Return the pieces of a statement's text between the values that C++ inserts.

    Pieces too short to identify a message are left out, unless all of them are short.
    """
    # The macro's own words surround the message (c10/util/Exception.h, TORCH_INTERNAL_ASSERT).
    message = _ASSERTION.sub("", text) or text
    pieces = [piece for piece in _VALUE.split(message) if piece.strip()]
    long = [piece for piece in pieces if len(piece.strip()) >= _LONG]
    return tuple(long or sorted(pieces, key=len)[-1:])


def lint_texts(statements: Iterable[Statement], directory: Path) -> Iterator[FileProblem]:
    """Yield the texts that nothing accounts for where they are printed, and the entries that account for nothing."""
    extracted = TEXTS.load(directory)
    entries, document = read_entries(directory / FILE, "reasons", Reason)
    yield from document.problems
    if not extracted.texts:
        return
    items = (item for _, entry in entries for item in entry.texts)
    printed = (PrintedText(text=i, functions=(None,)) if isinstance(i, str) else i for i in items)
    reasons = Counter((each.text, function) for each in printed for function in each.functions)
    printed_at = set()
    pieces = [(item, fragments(item.error.text)) for item in statements if item.error is not None]
    for text, places in extracted.texts.items():
        quoting = [item for item, parts in pieces if is_quoted(text, parts)]
        for place in places:
            key = text, place[1] if len(places) > 1 else None
            printed_at.add(key)
            lines = open_lines(place, quoting, extracted)
            if lines and key not in reasons:
                where = f"{text!r} in {place[1]}, torch {', '.join(lines)}"
                yield FileProblem(FILE, 0, "reasons", f"open, no statement and no reason: {where}")
    for key, count in sorted(reasons.items(), key=str):
        where = f"{key[0]!r}" + (f" in {key[1]}" if key[1] else "")
        if key not in printed_at:
            yield FileProblem(FILE, 0, "reasons", f"is in no wheel, or elsewhere: {where}")
        elif count > 1:
            yield FileProblem(FILE, 0, "reasons", f"listed {count} times: {where}")


def open_lines(place: Place, quoting: Sequence[Statement], extracted: Extracted) -> list[str]:
    """Return the releases that print a text here, and where no statement with the text names any of the operators.

    A release whose registered kernels do not lead to the function is not among them, where those of another do.
    """
    lines = list_spanned(place[3], extracted.releases)
    users = expand(extracted.operators.get(place[1] or "", ()), extracted.releases)
    if not users or SHARED in users.values():
        return [] if quoting else lines

    def is_quoted_in(line: str) -> bool:
        ops = users[line].split()
        return any(item.spans(line) and any(map(item.names, ops)) for item in quoting)

    return [line for line in lines if line in users and not is_quoted_in(line)]


def is_quoted(text: str, pieces: Iterable[str]) -> bool:
    """Return whether a piece of a statement's text is part of this text, or this text part of a piece."""
    own = text.strip()
    if len(own) < _ENOUGH:
        return any(own == piece.strip() for piece in pieces)
    return any(piece in text or own in piece for piece in pieces)


class PublicReport(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issue or pull request, its content in our words, and its statements or the reason for none."""

    address: str
    says: str
    statements: tuple[str, ...] = ()
    why_none: str = ""


def lint_reports(statements: Collection[str], directory: Path) -> Iterator[FileProblem]:
    """Yield the problems of the file: an unknown statement, an address twice, neither a statement nor a reason.

    Args:
        statements: the ids of all statements.
        directory: the op lists.
    """
    entries, document = read_entries(directory / REPORTS, "reports", PublicReport)
    yield from document.problems
    seen: set[str] = set()
    for index, report in entries:
        line, path = document.line(("reports", index)), f"reports.{index}"
        if not report.address.startswith("https://") or report.address in seen:
            yield FileProblem(REPORTS, line, path, f"no address, or one twice: {report.address}")
        seen.add(report.address)
        if bool(report.statements) is bool(report.why_none):
            yield FileProblem(REPORTS, line, path, "either statements or why_none")
        for name in report.statements:
            if name not in statements:
                yield FileProblem(REPORTS, line, path, f"no statement has the id {name}")
