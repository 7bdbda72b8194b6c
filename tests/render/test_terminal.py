"""What the text for people leaves to -v."""

from __future__ import annotations

from opcheck.render import report as report_page
from opcheck.render import summary
from opcheck.render.text import as_text
from tests.render.test_formats import REPORTS


def test_what_no_call_is_known_to_meet_is_left_to_verbose() -> None:
    report = REPORTS["everything"]
    known = [line for _, line in summary.statements(report) if "(perhaps)" in line]
    assert known
    short, whole = (
        as_text(report_page.document(report), width=1000, full=full) for full in (False, True)
    )
    assert all(line in whole and line not in short for line in known)
    assert f"{len(known)} statement that calls of this run may meet (-v shows all)" in short
    assert "may meet (-v" not in whole
