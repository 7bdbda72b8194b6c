"""The report as Markdown, for a pull request or a documentation page."""

from __future__ import annotations

from collections.abc import Iterator

from tabulate import tabulate

from opcheck.common.sanitize import markdown as _text
from opcheck.common.sanitize import markdown_code as _code
from opcheck.judge.judge import outcome
from opcheck.model.records import CallGroup, Finding, Memory, Precision, Report
from opcheck.model.visible import visible
from opcheck.render import memory, precision, summary


def render(report: Report) -> str:
    """The report as one Markdown document."""
    return "\n".join(_lines(visible(report))) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_text(report.model)}: {_text(report.headline)}"
    yield ""
    yield f"On {_text(summary.target(report))}: {_text(summary.totals(report))}."
    if report.findings:
        yield from ("", "## Findings")
        for finding in report.findings:
            yield from _finding(finding)
    if report.groups:
        yield from ("", "## Operators", "")
        yield tabulate(
            [_row(group) for group in report.groups],
            headers=["operator", "what happens", "calls", "why", "dtypes"],
            tablefmt="pipe",
            disable_numparse=True,
            colalign=("left", "left", "right", "left", "left"),
        )
    known = summary.statements(report)
    if known:
        yield from ("", "## Limitations and advisories", "")
        yield from (f"- {_code(name)} {_text(line)}" for name, line in known)
    if report.memory:
        yield from _memory(report.memory)
    for run in report.precision:
        yield from _precision(run)
    yield from ("", "## Transfers", "")
    yield f"{_text(summary.transfers(report))}."
    yield from ("", "## Evidence", "")
    yield f"- Captured: {_text(summary.capture(report))}"
    yield f"- Judged by: {_text(summary.evidence(report))}"
    yield from ("", "## Not checked", "")
    yield from (f"- {_text(line)}" for line in report.not_checked)
    yield from ("", f"Next: {_code(summary.next_command(report))}")


def _memory(estimate: Memory) -> Iterator[str]:
    yield from ("", f"## {memory.TITLE}")
    held = memory.holders(estimate, len(estimate.holders))
    for rows in (memory.peaks(estimate), held, memory.macs(estimate)):
        yield from _table(rows)
    yield ""
    who, prints = memory.printed(estimate.macs)
    if prints:
        yield f"- {who}: {_code(prints)}"
    yield from (f"- {_text(line)}" for line in memory.sentences(estimate))


def _precision(run: Precision) -> Iterator[str]:
    yield from ("", f"## {_text(precision.title(run))}", "", f"{_text(precision.verdict(run))}.")
    for rows in (precision.lines(run), precision.modules(run)):
        if rows.rows:
            yield from _table(rows)
    yield ""
    yield from (f"- {_text(line)}" for line in precision.sentences(run))


def _table(rows: memory.Rows) -> Iterator[str]:
    yield ""
    yield tabulate(
        [[_text(cell) for cell in row] for row in rows.rows],
        headers=rows.headers,
        tablefmt="pipe",
        disable_numparse=True,
        colalign=rows.aligned,
    )


def _finding(finding: Finding) -> Iterator[str]:
    yield ""
    yield f"**{finding.severity} {finding.rule}** {_text(finding.message)}"
    yield ""
    for entry in finding.locations:
        source = entry.location.text.strip() if entry.location else ""
        yield f"- {_text(summary.place(entry))}" + (f": {_code(source)}" if source else "")
    if finding.ignored:
        yield f"- ignored: {_text(finding.ignored)}"
    if finding.prints:
        yield f"- prints: {_code(finding.prints)}"
    if finding.hint:
        yield f"- help: {_text(finding.hint)}"
    if finding.remedy:
        yield f"- try: {_code(finding.remedy)}"


def _row(group: CallGroup) -> list[str]:
    return [
        _code(group.op),
        outcome(group.verdict).label,
        f"{group.count:,}",
        _text(group.verdict.because),
        _text(", ".join(group.dtypes)),
    ]
