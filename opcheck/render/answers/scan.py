"""What ``opcheck scan`` found, as a page."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from opcheck.common.text import plural
from opcheck.render.answers.document import Block, Bullets, Document, Heading, Lines, Table
from opcheck.source.rules import BY_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.model.records import Finding, Problem
    from opcheck.source.records import ScanReport

_KINDS = {"python": "Python file", "notebook": "notebook", "requirements": "requirement file"}


def document(report: ScanReport) -> Document:
    """The page: the counts, the findings file by file, the ways out rule by rule, what was not read."""
    return tuple(_blocks(report))


def _blocks(report: ScanReport) -> Iterator[Block]:
    target = f"torch {report.target['torch']}, macOS {report.target['macos']}"
    yield Heading(f"{', '.join(report.paths)} read for {target}", 1)
    found = ", ".join(plural(count, name) for name, count in report.totals.items() if count)
    ignored = f"; {plural(report.ignored, 'finding')} ignored" if report.ignored else ""
    known = f"; {plural(report.known, 'finding')} in the baseline" if report.known else ""
    kinds = (
        plural(report.read[kind], noun) for kind, noun in _KINDS.items() if kind in report.read
    )
    length = plural(report.read.get("lines", 0), "line")
    read = f"Read: {', '.join(kinds) or 'nothing'} ({length})."
    yield Lines((f"{found or 'No findings'}{ignored}{known}.", read))
    if report.notes:
        yield Heading("Ignores")
        yield Bullets(report.notes)
    if report.by_rule:
        yield Heading("By rule")
        rows = ((code, str(count), BY_ID[code].title) for code, count in report.by_rule.items())
        yield Table(("rule", "count", "what"), tuple(rows), code=(0,))
    for file, findings in groupby(report.findings, key=_file):
        yield Heading(file)
        lines = ((_line(f), f.severity, f.rule, _message(f)) for f in findings)
        yield Table(("line", "severity", "rule", "what"), tuple(lines), code=(2,))
    if report.findings:
        yield Heading("Ways out")
        yield Bullets(tuple(_hints(report)))
    if report.problems or report.skipped:
        yield Heading("Not read")
        left = (f"left out: {count} {what}" for what, count in report.skipped.items())
        yield Bullets((*map(_problem, report.problems), *left))
    yield Heading("Not checked")
    yield Bullets(report.not_checked)


def _file(finding: Finding) -> str:
    location = finding.locations[0].location
    return location.file if location else ""


def _line(finding: Finding) -> str:
    location = finding.locations[0].location
    return str(location.line) if location else ""


def _message(finding: Finding) -> str:
    uses = [place.location.line for place in finding.locations[1:] if place.location]
    if not uses:
        return finding.message
    more = ", ..." if finding.count > len(uses) + 1 else ""
    return f"{finding.message} (used in {', '.join(map(str, uses))}{more})"


def _hints(report: ScanReport) -> Iterator[str]:
    """One line a rule and hint; the page of the rule says more."""
    hints: dict[str, dict[str, None]] = {}
    for finding in report.findings:
        hints.setdefault(finding.rule, {})[finding.hint] = None
    for rule in sorted(hints):
        for hint in hints[rule]:
            if hint:
                yield f"{rule}: {hint}"
    yield "opcheck explain CODE says what each means"


def _problem(problem: Problem) -> str:
    where = str(problem.location) if problem.location else problem.module
    return f"{where}: {problem.message} ({problem.kind})"
