"""What the text for people leaves to -v."""

from __future__ import annotations

from opcheck.render import report as report_page
from opcheck.render import summary
from opcheck.render.document import Facts, TextSpan
from opcheck.render.text import as_text
from tests.render.test_formats import REPORTS


def test_what_no_call_is_known_to_meet_is_left_to_verbose() -> None:
    report = REPORTS["everything"]
    doubtful = [line for _, line in summary.statements(report) if "(perhaps)" in line]
    assert doubtful
    short, whole = (as_text(report_page.document(report), width=1000, full=full) for full in (False, True))
    assert all(line in whole and line not in short for line in doubtful)
    assert f"{len(doubtful)} statement that calls of this run may meet (-v shows all)" in short
    assert "may meet (-v" not in whole


def test_facts_that_are_too_many_lines_are_cut_after_one_but_for_a_command() -> None:
    long = "word " * 40
    items = (("calls", long), ("wrong", long), ("next", TextSpan(long, "code")))
    whole = as_text([Facts(items, short=True, lines=2)]).splitlines()
    assert len(whole) == 2 + 2 + 3
    cut = as_text([Facts(items, short=True, lines=2, most=6)]).splitlines()
    assert len(cut) == 1 + 1 + 3
    assert cut[0].endswith(" ...")
    assert as_text([Facts(items, short=True, lines=2, most=7)]).splitlines() == whole
    # A narrow page would lose the end of each text.
    narrow = as_text([Facts(items, short=True, lines=2)], width=80)
    assert as_text([Facts(items, short=True, lines=2, most=6)], width=80) == narrow
