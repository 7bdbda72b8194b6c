"""The report as text for a terminal: the answer first, then what to do about it."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from opcheck.common.sanitize import for_log
from opcheck.common.text import plural
from opcheck.judge.judge import outcome
from opcheck.model.records import Finding, GroupLocation, Memory, Precision, Report
from opcheck.model.visible import visible
from opcheck.render import memory, precision, summary
from opcheck.render.memory import Rows

WIDTH = 100
_SHOWN = 3
#: lines that hold memory
_HELD = 5
_COLOURS = {
    "runs natively": "bold green",
    "runs, partly on the CPU": "bold yellow",
    "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1": "bold yellow",
    "fails": "bold red",
    "could not tell": "bold magenta",
    "error": "red",
    "warning": "yellow",
    "note": "cyan",
    "mps": "green",
    "cpu": "yellow",
    "unknown": "magenta",
    "raises": "red",
}


def render(report: Report, *, color: bool = False, width: int = WIDTH, full: bool = False) -> str:
    """The report as lines of at most ``width`` columns.

    Args:
        report: what to show.
        color: use escape sequences.
        width: columns; never more than 100.
        full: show every place and message whole, not only the beginning.
    """
    report = visible(report)
    out = Console(
        file=io.StringIO(),
        width=min(width, WIDTH),
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    out.print(Text(report.headline, _COLOURS[report.headline]))
    out.print(f"{report.model} on {summary.target(report)}")
    out.print(summary.totals(report))
    if report.findings:
        _heading(out, "Findings")
        for finding in report.findings:
            _finding(out, finding, full=full)
    if report.groups:
        _heading(out, "Operators")
        out.print(_operators(report))
    _statements(out, report, full=full)
    if report.memory:
        _memory(out, report.memory, full=full)
    for run in report.precision:
        _precision(out, run)
    for title, lines in (
        ("Transfers", [summary.transfers(report)]),
        ("Evidence", [f"captured: {summary.capture(report)}", summary.evidence(report)]),
        ("Not checked", report.not_checked),
        ("Next", [summary.next_command(report)]),
    ):
        _heading(out, title)
        for line in lines:
            _indented(out, line, 2)
    assert isinstance(out.file, io.StringIO)
    return for_log("\n".join(line.rstrip() for line in out.file.getvalue().split("\n")))


def _heading(out: Console, title: str) -> None:
    out.print()
    out.print(Text(title, "bold"))


def _indented(out: Console, line: str | Text, columns: int) -> None:
    out.print(Padding(line, (0, 0, 0, columns)))


def _statements(out: Console, report: Report, *, full: bool) -> None:
    known = summary.statements(report)
    certain = summary.certain_statements(report)
    pairs = [(name, line) for name, line in known if full or name in certain]
    if known:
        _heading(out, "Limitations and advisories")
    for name, line in pairs:
        _indented(out, Text.assemble((name, "bold"), f" {line}"), 2)
    if len(known) > len(pairs):
        more = plural(len(known) - len(pairs), "statement")
        _indented(out, f"{more} that calls of this run may meet (-v shows all)", 2)


def _finding(out: Console, finding: Finding, *, full: bool) -> None:
    head = Text.assemble(
        (f"{finding.severity} {finding.rule}", _COLOURS[finding.severity]), f" {finding.message}"
    )
    _indented(out, head, 2)
    if finding.ignored:
        _indented(out, f"ignored: {finding.ignored}", 4)
    _places(out, finding.locations, len(finding.locations) if full else _SHOWN)
    if finding.prints:
        first, stop, rest = finding.prints.partition(". ")
        prints = finding.prints if full or not rest else f"{first}{stop}..."
        _indented(out, f"prints: {prints}", 4)
    if finding.hint:
        _indented(out, f"help: {finding.hint}", 4)
    if finding.remedy:
        _indented(out, f"try: {finding.remedy}", 4)


def _places(out: Console, places: Sequence[GroupLocation], shown: int) -> None:
    for entry in places[:shown]:
        _indented(out, summary.place(entry), 4)
        if entry.location and entry.location.text:
            _indented(out, Text(entry.location.text.strip(), "dim"), 6)
    if len(places) > shown:
        _indented(out, f"and {plural(len(places) - shown, 'more place')} (-v shows all)", 4)


def _memory(out: Console, estimate: Memory, *, full: bool) -> None:
    _heading(out, memory.TITLE)
    held = memory.holders(estimate, len(estimate.holders) if full else _HELD)
    for rows in (memory.peaks(estimate), held, memory.macs(estimate)):
        _table(out, rows)
    who, prints = memory.printed(estimate.macs)
    if prints:
        _indented(out, f"{who}: {prints}", 2)
    for line in memory.sentences(estimate):
        _indented(out, line, 2)


def _precision(out: Console, run: Precision) -> None:
    _heading(out, precision.title(run))
    out.print(Padding(precision.verdict(run), (0, 0, 1, 2)))
    for rows in (precision.lines(run), precision.modules(run)):
        if rows.rows:
            _table(out, rows)
    for line in precision.sentences(run):
        _indented(out, line, 2)


def _table(out: Console, rows: Rows) -> None:
    table = Table(box=None, show_edge=False, pad_edge=False, header_style="dim")
    for header, side in zip(rows.headers, rows.aligned, strict=True):
        table.add_column(header, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows.rows:
        table.add_row(*map(Text, row))
    out.print(Padding(table, (0, 0, 1, 2)))


def _operators(report: Report) -> Padding:
    table = Table(box=None, show_edge=False, pad_edge=False, header_style="dim")
    table.add_column("calls", justify="right")
    table.add_column("operator", overflow="fold")
    table.add_column("what happens", overflow="fold")
    table.add_column("dtypes", overflow="fold")
    for group in report.groups:
        row = outcome(group.verdict)
        table.add_row(
            f"{group.count:,}",
            Text(group.op),
            Text(row.label, _COLOURS[row.side]),
            ", ".join(group.dtypes),
        )
    return Padding(table, (0, 0, 0, 2))
