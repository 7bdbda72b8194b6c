"""The public reports about MPS that were read, and the statement that each led to: op_lists/reports.yaml."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from opcheck.data.strict_yaml import Problem, read_entries
from opcheck.model.records import Record

FILE = "reports.yaml"


class PublicReport(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issue or pull request, what it says in our words, and its statements or the reason for none."""

    address: str
    says: str
    statements: tuple[str, ...] = ()
    why_none: str = ""


def lint_reports(known: Collection[str], directory: Path) -> Iterator[Problem]:
    """Yield the problems of the file: an unknown statement, an address twice, neither a statement nor a reason.

    Args:
        known: the ids of all statements.
        directory: the op lists.
    """
    entries, document = read_entries(directory / FILE, "reports", PublicReport)
    yield from document.problems
    seen: set[str] = set()
    for index, report in entries:
        line, path = document.line(("reports", index)), f"reports.{index}"
        if not report.address.startswith("https://") or report.address in seen:
            yield Problem(FILE, line, path, f"no address, or one twice: {report.address}")
        seen.add(report.address)
        if bool(report.statements) is bool(report.why_none):
            yield Problem(FILE, line, path, "either statements or why_none")
        for name in report.statements:
            if name not in known:
                yield Problem(FILE, line, path, f"no statement has the id {name}")
