"""Diffs: applied to the text before they give the text after, and they name few lines."""

from __future__ import annotations

import difflib
import re
from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from opcheck.common.line_diff import unified_diff

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "last"]), max_size=30)


def patched(before: list[str], diff: list[str]) -> list[str]:
    """Apply a diff as ``patch`` does, and check its context and the numbers of its hunks."""
    after: list[str] = []
    place = 0
    for line in diff[2:]:
        hunk = re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$", line)
        if hunk:
            first = int(hunk[1]) - (hunk[2] != "0")
            after += before[place:first]
            place = first
            assert len(after) == int(hunk[3]) - (hunk[4] != "0")
            continue
        if line[0] in " -":
            assert before[place] == line[1:]
            place += 1
        if line[0] in " +":
            after.append(line[1:])
    return after + before[place:]


@given(lines, lines)
def test_the_diff_leads_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    diff = list(unified_diff(before, after, "a", "b"))
    assert bool(diff) == (before != after)
    if diff:
        assert diff[:2] == ["--- a\n", "+++ b\n"]
    assert patched(before, diff) == after


def test_a_short_change_reads_as_difflibs() -> None:
    before = [f"{number}\n" for number in range(20)]
    after = [*before[:9], "new\n", *before[10:], "more\n"]
    assert list(unified_diff(before, after, "a", "b")) == list(difflib.unified_diff(before, after, "a", "b"))


def test_frequent_lines_of_a_long_file_are_not_shown_as_changed() -> None:
    before = ["x = x.half()\n", "y = y.half()\n"] * 150
    after = list(before)
    after[100] = "x = x.float()\n"
    after.insert(201, "z = 1\n")
    diff = list(unified_diff(before, after, "a", "b"))
    assert [line for line in diff[2:] if line[0] in "+-"] == ["-x = x.half()\n", "+x = x.float()\n", "+z = 1\n"]
    usual = list(difflib.unified_diff(before, after, "a", "b"))
    assert len(usual) > len(diff), "what this module is for"


def test_a_long_file_of_few_different_lines_takes_no_square_of_its_length() -> None:
    before = ["\n", "x.cuda()\n"] * 20_000
    after = ["\n", "x.to(device)\n"] * 20_000
    start = perf_counter()
    diff = list(unified_diff(before, after, "a", "b"))
    assert perf_counter() - start < 5
    assert sum(line.startswith("-x") for line in diff) == 20_000
    assert "-\n" not in diff
