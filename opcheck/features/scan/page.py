"""The report of a scan as a document, and its findings in the formats of CI services."""

import shlex
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from opcheck.common.sanitize import one_line
from opcheck.common.text import plural
from opcheck.model.records import Finding, Problem
from opcheck.render import findings
from opcheck.render.document import Block, Bullets, Facts, Heading, Lines, Table, TextSpan, section
from opcheck.render.findings import FindingLog, JunitCase, Suite
from opcheck.source.rules import BY_ID
from opcheck.source.scan_records import ScanReport

#: The columns of CSV.
COLUMNS = ("rule", "severity", "file", "line", "message", "hint", "text", "fix")
_KINDS = {
    "python": "Python file",
    "notebook": "notebook",
    "requirements": "requirement file",
    "configuration": "YAML file",
    "container": "Dockerfile",
}


#: What text shows with -v alone.
SECTIONS = ("rules", "not fixable", "not checked")
#: So many findings of a rule are long enough for a table that counts them.
_MANY = 3


def document(report: ScanReport, shown: Collection[str] = SECTIONS) -> Iterator[Block]:
    """Make the page: the counts, the findings file by file, the ways out rule by rule, what was not read.

    Args:
        report: The report.
        shown: Those of SECTIONS that are shown; the rules are counted wherever that is shorter than the findings.
    """
    target = f"torch {report.target['torch']}, macOS {report.target['macos']}"
    yield Heading(f"{', '.join(report.paths)} read for {target}", 1)
    headline = _headline(report)
    ignored = f"; {plural(report.ignored, 'finding')} ignored" if report.ignored else ""
    known = f"; {plural(report.known, 'finding')} in the baseline" if report.known else ""
    kinds = (plural(report.read[kind], noun) for kind, noun in _KINDS.items() if kind in report.read)
    length = plural(report.read.get("lines", 0), "line")
    read = f"Read: {', '.join(kinds) or 'nothing'} ({length})."
    fixable = tuple(_fixable(report.fixable))
    yield Lines((f"{headline[:1].upper()}{headline[1:]}{ignored}{known}.", read, *fixable))
    yield from section("Ignores", Bullets(report.notes))
    by_rule = tuple((code, str(count), BY_ID[code].title) for code, count in report.by_rule.items())
    if "rules" in shown or len(report.findings) >= _MANY * len(by_rule):
        yield from section("By rule", Table(("rule", "count", "what"), by_rule, code=(0,)))
    for file, in_file in groupby(report.findings, key=lambda finding: _where(finding)[0]):
        yield Heading(file)
        cells = ((_where(f)[1], f.severity, f.rule, _message(f)) for f in in_file)
        yield Table(("line", "severity", "rule", "what"), tuple(cells), code=(2,), prose=(3,))
    yield from section("Ways out", Bullets(tuple(_hints(report))))
    if "not fixable" in shown:
        yield from section("Not fixable by a tool", Bullets(tuple(_not_fixable(report))))
    left = (f"left out: {count} {what}" for what, count in report.skipped.items())
    yield from section("Not read", Bullets((*map(_problem, report.problems), *left)))
    rest = ""
    if "not checked" in shown:
        yield from section("Not checked", Bullets(report.not_checked))
    else:
        rest = f"{report.not_checked[-1]} More: -v."
    yield Facts(tuple((name, words) for name, words in (("not checked", rest), ("next", _next(report))) if words))


def _next(report: ScanReport) -> TextSpan:
    """Return the command that shows the fixes, explains the first finding, or judges what a scan cannot."""
    words = ["opcheck", "scan", *report.paths, "--diff"]
    if not report.findings:
        words = ["opcheck", "audit", "MODEL"]
    elif report.fixable.get("unsafe"):
        words.append("--unsafe-fixes")
    elif not report.fixable.get("safe"):
        words = ["opcheck", "explain", report.findings[0].rule]
    return TextSpan(shlex.join(words))


def _fixable(counts: dict[str, int]) -> Iterator[str]:
    safe, unsafe = counts.get("safe", 0), counts.get("unsafe", 0)
    more = f"; {unsafe} more with --unsafe-fixes, which a person must review" if unsafe else ""
    if safe or unsafe:
        yield f"Fixable with --fix: {safe}{more}."


def _message(finding: Finding) -> str:
    uses = [place.location.line for place in finding.locations[1:] if place.location]
    if not uses:
        return finding.message
    more = ", ..." if finding.count > len(uses) + 1 else ""
    return f"{finding.message} (used in {', '.join(map(str, uses))}{more})"


def _hints(report: ScanReport) -> Iterator[str]:
    """Write a line for each rule and hint; the page of the rule has more."""
    hints = dict.fromkeys((finding.rule, finding.hint) for finding in report.findings)
    yield from (f"{rule}: {hint}" for rule, hint in sorted(hints, key=lambda each: each[0]) if hint)


def _not_fixable(report: ScanReport) -> Iterator[str]:
    """Write a line for each rule and reason why --fix leaves findings as they are."""
    reasons = {(finding.rule, findings.fix_of(finding)) for finding in report.findings}
    for rule, fix in sorted(reasons):
        if fix.startswith("none: "):
            yield f"{rule}: {fix.removeprefix('none: ')}"


def _problem(problem: Problem) -> str:
    where = str(problem.location) if problem.location else problem.module
    return f"{where}: {problem.message} ({problem.kind})"


def content(report: ScanReport) -> ScanReport:
    """Return what JSON and YAML contain."""
    return report


def finding_log(report: ScanReport) -> FindingLog:
    """List the findings at each of their places."""
    model = ", ".join(report.paths)
    target = f"torch {report.target['torch']}, macOS {report.target['macos']}"
    return FindingLog(
        tool=report.tool,
        id=f"opcheck/{model}/{target}",
        occurrences=tuple(findings.occurrences(report.findings, model)),
        properties={
            "headline": _headline(report),
            "model": model,
            "target": {**report.target, "cpu_fallback": False},
            "totals": report.totals,
            "complete": not report.problems,
            "opLists": {},
            "notChecked": report.not_checked,
        },
        summary=(f"{_headline(report)}: {one_line(model)} on {target}",),
    )


def suites(report: ScanReport) -> tuple[str, Iterable[Suite]]:
    """Make a test case for each finding; a file that was not read is skipped."""
    return "opcheck", [Suite(f"opcheck scan {' '.join(report.paths)}", _cases(report))]


def _cases(report: ScanReport) -> Iterator[JunitCase]:
    for finding in report.findings:
        file, line, _ = _where(finding)
        name = f"{finding.rule} {file}:{line} {finding.message}"
        yield findings.finding_case("opcheck.scan", name, [finding])
    for problem in report.problems:
        skipped = (("skipped", {"message": problem.message}, ""),)
        yield JunitCase("opcheck.scan", f"{problem.module} was not read", skipped)


def rows(report: ScanReport) -> Iterator[tuple[str, ...]]:
    """Make a row of COLUMNS for each finding."""
    for finding in report.findings:
        file, line, text = _where(finding)
        fix = findings.fix_of(finding)
        yield finding.rule, finding.severity, file, line, finding.message, finding.hint, text, fix


def lines(report: ScanReport) -> Iterator[dict[str, object]]:
    """Make an object for each finding, with its model and target."""
    target = {**report.target, "cpu_fallback": False}
    about = {"model": ", ".join(report.paths), "target": target, "headline": _headline(report)}
    yield from findings.lines(report.tool, about, report.findings)


def _headline(report: ScanReport) -> str:
    counts = [plural(count, name) for name, count in report.totals.items() if count]
    unread = [f"{len(report.problems)} not read"] if report.problems else []
    return ", ".join([*(counts or ["no findings"]), *unread]) if report.read else "nothing was read"


def _where(finding: Finding) -> tuple[str, str, str]:
    """Return the file, the line and its text."""
    where = finding.locations[0].location if finding.locations else None
    return (where.file, str(where.line), where.text) if where else ("", "0", "")
