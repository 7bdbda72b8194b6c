"""The run as the workflow commands of GitHub Actions: what fails as errors, the rest as notices, a line a target."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.sanitize import finished
from opcheck.project.gate.records import GateReport
from opcheck.render import github
from opcheck.render.gate_report import page
from opcheck.render.gate_report.merged import broken, merged, on


def render(gate: GateReport, _format_name: str = "github") -> str:
    """The commands, then the table as lines of the log."""
    return "".join(f"{line}\n" for line in (*_lines(gate), *page.summary_lines(gate)))


def step_summary(gate: GateReport) -> str:
    """The run as Markdown that is not too long for a step's summary."""
    return github.cut(finished(page.render(gate, "markdown"), "markdown"))


def _lines(gate: GateReport) -> Iterator[str]:
    for cell, _ in broken(gate):
        if cell.failed is not None:
            yield github.message("error", f"{cell.model}: {cell.failed.message}")
    for hit in merged(gate):
        kind = "error" if hit.state == "new" else "notice"
        yield github.command(hit.hit, kind, f"{hit.state}: {on(hit, gate)}")
