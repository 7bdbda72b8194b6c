"""The report of an audit as a document, and its findings in the formats of CI services."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from opcheck import render
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.text import and_more, plural
from opcheck.common.vocabulary import Side
from opcheck.judge.judge import outcome
from opcheck.model.records import Finding, GroupLocation, Report
from opcheck.model.saved import as_content
from opcheck.render import document as blocks
from opcheck.render import findings, memory_page, numbers_page, precision, summary, timing_page
from opcheck.render.report_words import REMEDIES
from opcheck.render.text import as_text

#: The columns of CSV: a row is a group of calls.
COLUMNS = (
    *("model", "torch", "macos", "cpu_fallback", "operator", "status", "kind", "what_happens", "calls"),
    *("because", "confidence", "dtypes", "phases", "limitations", "advisories", "places"),
)

#: The sections that the short text leaves out: ``--show`` picks some, ``-v`` shows all.
SECTIONS = ("notes", "operators", "memory", "time", "transfers", "evidence")


def document(report: Report, shown: Collection[str] = SECTIONS) -> Iterator[blocks.Block]:
    """Make the page: the answer, what to do about it, the summary, and then the details.

    Args:
        report: What the page is about.
        shown: Names of SECTIONS.
    """
    short = not {*SECTIONS} <= {*shown}
    yield title(report, notes=short and "notes" not in shown)
    if short:
        yield from _by_remedy(report, notes="notes" in shown)
    else:
        yield from blocks.section("Findings", *entries(report))
        yield from blocks.section("Summary", summary.facts(report, short=False))
    if report.memory:
        yield from memory_page.answers(report.memory)
    for run in report.precision:
        yield from precision.blocks(run)
    if short:
        yield summary.facts(report, short=True)
    if "operators" in shown:
        yield from blocks.section("Operators", blocks.table_of(report.groups, _OPERATORS, **_FORM))
        yield from itertools.chain.from_iterable(map(numbers_page.blocks, report.numbers))
    if "memory" in shown and report.memory:
        yield from memory_page.blocks(report.memory)
    if "time" in shown and report.time:
        yield from timing_page.blocks(report.time)
    if "transfers" in shown:
        yield from transfers(report)
    if "evidence" in shown:
        yield from statements(report)
        yield from blocks.section("Evidence", blocks.Bullets(evidence(report)))
        yield from blocks.section("Not checked", blocks.Bullets(report.not_checked))


_OPERATORS: dict[str, blocks.Column] = {
    "calls": "count:,",
    "operator": "op",
    "what happens": lambda group: blocks.TextSpan(outcome(group).label, cast("blocks.Style", outcome(group).side)),
    "why": "because",
    "dtypes": lambda group: ", ".join(group.dtypes),
}
_FORM: dict[str, Any] = {"code": (1,), "right": (0,), "wide": (3,)}

#: Findings that the short text shows; the headings have the lines of all.
_SHOWN = 5

#: What mends the findings of a rule, apart from other errors and warnings.
_BY_RULE = {rule: remedy for remedy, rules in REMEDIES.items() for rule in rules}
_OTHERS = {"error": "Change", "warning": "Check", "note": "Notes on"}


def group_by_remedy(report: Report, *, notes: bool) -> Iterator[tuple[str, list[tuple[Finding, blocks.FindingEntry]]]]:
    """Yield the findings by what mends them: a heading with the lines, and the findings with their entries."""
    groups: dict[str, list[tuple[Finding, blocks.FindingEntry]]] = {remedy: [] for remedy in REMEDIES}
    kept = [each for each in report.findings if notes or each.severity != "note"]
    for finding, shown in zip(kept, entries(report, notes=notes), strict=True):
        remedy = _BY_RULE.get(f"{finding.severity} {finding.rule}", _OTHERS[finding.severity])
        groups.setdefault("Ignored in" if finding.ignored else remedy, []).append((finding, shown))
    for remedy, members in groups.items():
        if members:
            yield f"{remedy} {_lines_of(finding for finding, _ in members)}", members


def _by_remedy(report: Report, *, notes: bool) -> Iterator[blocks.Block]:
    """Show the findings by what mends them: each group with its lines, and the first findings in short."""
    room, left = _SHOWN, sum(each.severity != "note" for each in report.findings)
    groups = list(group_by_remedy(report, notes=notes))
    for heading, members in groups:
        yield blocks.Heading(heading)
        alike = _alike([(finding, _in_short(finding, shown)) for finding, shown in members])
        for (finding, entry), *others in alike if heading.startswith("Notes on") else alike[:room]:
            yield entry
            if others:
                ops = list(filter(None, (each.op for each, _ in others)))
                about = f"for {and_more(ops, _SHOWN)}" if ops else "again"
                yield blocks.Lines((f"and {finding.rule} {about} (-v shows all)",))
            room = max(room - 1, 0)
            left -= (1 + len(others)) * (finding.severity != "note")
    hidden = (plural(left, "more finding") if left else "", "" if notes else _count_notes(report))
    if groups and any(hidden):
        yield blocks.Lines((f"and {' and '.join(filter(None, hidden))} (-v shows all)",))


def _alike(members: list[tuple[Finding, blocks.FindingEntry]]) -> list[list[tuple[Finding, blocks.FindingEntry]]]:
    """Put the warnings and notes of a rule together that have the same help; each error stays alone."""
    alone = enumerate(finding.severity == "error" or not entry.details for finding, entry in members)
    keys = (n if is_alone else (members[n][0].rule, members[n][1].details) for n, is_alone in alone)
    return list(group_values(zip(keys, members, strict=True)).values())


def _count_notes(report: Report) -> str:
    count = sum(each.severity == "note" for each in report.findings)
    return plural(count, "note") if count else ""


def _in_short(finding: Finding, made: blocks.FindingEntry) -> blocks.FindingEntry:
    """Return the entry with what to do as its only detail, and without how a composite gets to its reason."""
    if _BY_RULE.get(f"{finding.severity} {finding.rule}", "").startswith("Set"):
        # The heading names the variable.
        finding = replace(finding, hint=finding.hint.partition("; ")[2])
    wanted = {"ignored"} if finding.ignored else {"help", "try"}
    message = _COMPOSITE.sub("", made.message)
    details = [each for each in findings.details(finding) if each[0] in wanted]
    return replace(made, message=message, details=tuple(details[-1:]), short=True)


def _lines_of(found: Iterable[Finding]) -> str:
    """Name the lines of findings by their files: ``2 lines: m.py:20, 29``."""
    lines: dict[str, dict[int, str]] = {}
    for finding in found:
        # What follows the origin of a dtype is mended there.
        places = finding.locations[: 1 if finding.rule in {"OC140", "OC141", "OC142"} else None]
        native = _NATIVE.search(finding.hint)
        for where in filter(None, (place.location for place in places)):
            note = f" (native in {native[1].strip()})" if native else ""
            lines.setdefault(where.file, {})[where.line] = note
    notes = {file: [f"{line}{note}" for line, note in sorted(found.items())] for file, found in lines.items()}
    texts = (f"{file.rpartition('/')[2]}:{and_more(numbers, 8)}" for file, numbers in notes.items())
    count = sum(map(len, lines.values()))
    return f"{plural(count, 'line')}: {'; '.join(texts)}" if count else "the model"


#: How a reason begins that is true of a call in the body of a composite.
_COMPOSITE = re.compile(r"it is a composite whose body calls \S+: ")

#: The release or the macOS that a hint names for a native kernel.
_NATIVE = re.compile(r"([^;]+) has an MPS kernel for it")


def title(report: Report, *, notes: bool = False) -> blocks.Title:
    """Say what the report is about, the answer first; and how many notes there are, if there is nothing else."""
    only_notes = notes and all(each.severity == "note" for each in report.findings)
    count = only_notes and _count_notes(report)
    return blocks.Title(
        answer=blocks.TextSpan(summary.answer(report), _style(report)),
        subject=report.model,
        target=summary.target(report),
        numbers=summary.deciding_numbers(report) + (f"; {count}" if count else ""),
    )


def _style(report: Report) -> blocks.Style:
    """Return the headline's style: wrong results have the colour of errors, or of warnings where inputs decide."""
    wrong = {each.frequency for each in report.wrong}
    if "always" in wrong:
        return "raises"
    style = summary.HEADLINE_STYLES[report.headline]
    return "cpu" if "sometimes" in wrong and style == "mps" else style


#: Rows of the tables of regions and synchronizations that are seen at once.
_ROWS = 12


def transfers(report: Report) -> Iterator[blocks.Block]:
    """Describe the copies of CPU fallbacks, the regions of the run, and where the CPU waits for the GPU."""
    yield from blocks.section("Transfers", blocks.Lines((f"{summary.transfers(report)}.",)))
    regions = report.partition.regions
    if len(regions) > 1:
        columns: dict[str, blocks.Column] = {
            "region": lambda region: blocks.TextSpan(SIDES[region.side], region.side),
            "calls": "calls:,",
            "from-to": lambda region: f"{region.first:,}-{region.last:,}",
            "copied there": blocks.size_of("bytes_in", "-"),
            "copied back": blocks.size_of("bytes_out", "-"),
        }
        yield blocks.table_of(regions, columns, right=(1, 2, 3, 4), shown=_ROWS)
    if report.synchronizations:
        yield blocks.table_of(report.synchronizations, _WAITS, code=(1,), right=(0,), shown=_ROWS)


_WAITS: dict[str, blocks.Column] = {
    "times": lambda entry: f"{entry.place.count:,}",
    "operator": "op",
    "the CPU waits for": "why",
    "line": lambda entry: summary.place(entry.place),
}
#: What a region of each side is called.
SIDES: dict[Side, str] = {"mps": "native", "cpu": "on the CPU", "unknown": "unknown", "raises": "raising"}


def content(report: Report) -> dict[str, object]:
    """Return the content of JSON and YAML."""
    return as_content(report)


#: The operator in a text that a Mac prints.
_QUOTED = re.compile("'[^']*'")


def entries(report: Report, *, notes: bool = True) -> Iterator[blocks.FindingEntry]:
    """Make an entry of each finding, its places with the first call that the graph has of each.

    A Mac's message is shown with the first finding that has it, whichever operator it names.

    Args:
        report: What has the findings.
        notes: Include the notes.
    """
    printed: set[str] = set()
    first: dict[tuple[str, GroupLocation], int] = {}
    for number, call in enumerate(report.graph):
        group = report.groups[call.group]
        first.setdefault((group.op, group.locations[call.place]), number)
    for finding in report.findings:
        if finding.severity == "note" and not notes:
            continue
        calls = [first.get((finding.op, place)) for place in finding.locations]
        text = _QUOTED.sub("", finding.prints)
        again = text in printed
        printed.add(text)
        shown = replace(finding, prints="") if again else finding
        yield entry(shown, map(place, finding.locations, calls))


def entry(finding: Finding, places: Iterable[blocks.FindingPlace], scope: str = "") -> blocks.FindingEntry:
    """Make the entry of a finding at these places.

    Args:
        finding: What a rule found.
        places: Where.
        scope: The models and targets that have it; empty: those of the page.
    """
    details = map(_detail, findings.details(finding))
    shown = (*([("for", scope)] if scope else []), *details)
    return blocks.FindingEntry(places=tuple(places), details=shown, **pick(finding, "severity", "rule", "message"))


def place(where: GroupLocation, call: int | None = None) -> blocks.FindingPlace:
    """Make the place of a finding or of calls, with its line of source."""
    source = where.location.text.strip() if where.location else ""
    return blocks.FindingPlace(summary.place(where), source, call)


def _detail(detail: tuple[str, str]) -> tuple[str, str | blocks.TextSpan]:
    """Show what a Mac prints as code, and in text only its first sentence."""
    name, text = detail
    if name not in {"prints", "try"}:
        return detail
    sentence, stop, rest = text.partition(". ")
    return name, blocks.TextSpan(text, brief=f"{sentence}{stop}..." if rest and name == "prints" else "")


def statements(report: Report) -> Iterator[blocks.Block]:
    """List the limitations and advisories, first those that some call meets for certain."""
    certain = summary.certain_statements(report)
    known = sorted(summary.statements(report), key=lambda entry: entry[0] not in certain)
    shown = sum(name in certain for name, _ in known)
    rest = f"{plural(len(known) - shown, 'statement')} that calls of this run may meet"
    lines = tuple((blocks.TextSpan(name, "name"), line) for name, line in known)
    yield from blocks.section("Limitations and advisories", blocks.Bullets(lines, shown, rest))


def evidence(report: Report) -> tuple[str, ...]:
    """Say what was read of the model, what the calls were captured with, and what they were judged by."""
    read, captured, judged = report.capture.source, summary.capture(report), summary.evidence(report)
    texts = {"Read": read, "Captured": captured, "Judged by": judged}
    return tuple(f"{name}: {text}" for name, text in texts.items() if text)


def finding_log(report: Report) -> findings.FindingLog:
    """List the findings at each of their places."""
    plain = msgspec.to_builtins
    properties = {
        **pick(report, "headline", "model"),
        "target": plain(report.target),
        "totals": report.totals,
        "complete": report.capture.complete,
        "opLists": plain(report.op_lists),
        "notChecked": report.not_checked,
    }
    return findings.FindingLog(
        tool=report.tool,
        id=f"opcheck/{report.model}/{report.target}",
        occurrences=tuple(findings.occurrences(report.findings, report.model, report.groups)),
        properties=properties,
        summary=(summary.headline(report),),
    )


def suites(report: Report) -> tuple[str, Iterable[findings.Suite]]:
    """Name the run, and make one suite: a test case for each group of calls.

    A group fails with its errors, and is skipped where its status is unknown: it never passes for
    native. A finding that is not about one operator is a test case of its own.
    """
    properties = {
        **pick(report, "tool", "headline"),
        "numbers": summary.deciding_numbers(report),
        "totals": summary.totals(report),
        "transfers": summary.transfers(report),
        "evidence": summary.evidence(report),
    }
    return "opcheck", [findings.Suite(f"{report.model} on {report.target}", _cases(report), properties)]


def _cases(report: Report) -> Iterator[findings.JunitCase]:
    rest = list(report.findings)
    for group in report.groups:
        places = {*group.locations}
        own = [f for f in rest if f.op == group.op and not places.isdisjoint(f.locations)]
        rest = [finding for finding in rest if finding not in own]
        verdict = group.verdict
        # Two groups of one operator differ in the reason, and so in their names.
        name = f"{group.op}: {outcome(verdict).label} ({verdict.because})"
        unknown = verdict.status == "unknown" and not any(map(findings.is_failure, own))
        skipped = f"unknown: {verdict.because}" if unknown else ""
        yield findings.finding_case("opcheck.operators", name, own, skipped)
    for finding in rest:
        name = f"{finding.rule} {finding.message}"
        yield findings.finding_case("opcheck.findings", name, [finding])


def rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Make a row of COLUMNS for each group of calls."""
    target = report.target
    about = (report.model, target.torch, target.macos, "1" if target.cpu_fallback else "0")
    for group in report.groups:
        verdict = group.verdict
        happens = (verdict.status, verdict.kind or "", outcome(verdict).label, str(group.count))
        lists = map(" ".join, (group.dtypes, group.phases, verdict.limitations, verdict.advisories))
        places = "; ".join(map(summary.place, group.locations))
        yield *about, group.op, *happens, verdict.because, verdict.confidence, *lists, places


def lines(report: Report) -> Iterator[dict[str, object]]:
    """Make an object for each finding, with its model and target."""
    target = msgspec.to_builtins(report.target)
    about = {"model": report.model, "target": target, "headline": report.headline}
    yield from findings.lines(report.tool, about, report.findings)


# -- what Python shows of a report ------------------------------------------------------------------------------------


def as_answer(report: Report) -> str:
    """Return what ``opcheck audit`` prints in a terminal."""
    return as_text(document(report, ())).rstrip("\n")


def as_fragment(report: Report) -> str:
    """Return the answer as HTML without a page around it."""
    return str(import_module("opcheck.render.html").as_fragment(document(report, ())))


def findings_as_text(findings: Iterable[Finding]) -> str:
    """Return a row for each finding."""
    return as_text([_finding_table(findings)]).rstrip("\n")


def findings_as_html(findings: Iterable[Finding]) -> str:
    """Return a row for each finding as HTML."""
    return str(import_module("opcheck.render.html").as_fragment([_finding_table(findings)]))


def _finding_table(findings: Iterable[Finding]) -> blocks.Block:
    names = {"severity": "severity", "rule": "rule", "operator": "op", "message": "message"}
    first = {"first line": lambda f: next((p.line for p in f.locations if p.line), "")}
    table = blocks.table_of(findings, {**names, **first})
    return table if table.rows else blocks.Lines(("no findings",))


def save(report: Report, path: Path) -> None:
    """Write a report in the format that the file's suffix names.

    Raises:
        UsageError: no format has that suffix, or the file cannot be written.
    """
    name = render.format_of(str(path))
    if name is None:
        suffixes = sorted(suffix for each in render.FORMATS.values() for suffix in each)
        problem, hint = f"no format has the suffix {path.suffix!r}", f"one of {', '.join(suffixes)}"
        raise UsageError(problem, context=f"Report.save({str(path)!r})", hint=hint)
    write_text(path, render.render(report, name))
