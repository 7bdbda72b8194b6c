"""What is new, fixed, changed and unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from opcheck.judge.report_changes import Comparison, Side, compare, worse
from opcheck.model.records import OpCall
from tests.made import call, make_report


def side(*calls: OpCall, **others: Any) -> Side:
    return Side("made", make_report(*calls, **others))


def rules(result: Comparison) -> dict[str, list[str]]:
    return {
        "new": [entry.rule for entry in result.new],
        "fixed": [entry.rule for entry in result.fixed],
        "changed": [change.after.rule for change in result.changed],
    }


def test_new_fixed_and_unchanged_are_told_by_fingerprint() -> None:
    foo, svd, mm = call("aten::foo", 1), call("aten::svd", 2), call("aten::mm", 3)
    result = compare(side(foo, mm), side(svd, mm, foo))
    # The copies around the fallbacks are more than before.
    assert rules(result) == {"new": ["OC102"], "fixed": [], "changed": ["OC110"]}
    assert result.new[0].op == "aten::svd"
    back = compare(side(svd, mm, foo), side(foo, mm))
    assert [entry.op for entry in back.fixed] == ["aten::svd"]
    assert back.counts["new"] == 0
    assert (back.counts["changed"], back.counts["unchanged"]) == (1, 1)


def test_another_line_is_the_same_finding_and_more_calls_a_change() -> None:
    first = call("aten::foo", 1)
    assert first.location is not None
    moved = msgspec.structs.replace(first, location=msgspec.structs.replace(first.location, line=99))
    assert compare(side(first), side(moved)).counts == {
        "new": 0,
        "fixed": 0,
        "changed": 0,
        "unchanged": len(side(first).entries),
    }
    twice = compare(side(first), side(first, first))
    assert "calls: 1 -> 2" in [what for change in twice.changed for what in change.what]


def test_a_severity_that_rises_is_worse_and_one_that_falls_is_not() -> None:
    calls = (call("aten::foo"),)
    raises, falls_back = side(*calls), Side("with", make_report(*calls, cpu_fallback=True))
    up, down = compare(falls_back, raises), compare(raises, falls_back)
    assert "severity: warning -> error" in up.changed[0].what
    assert (worse(up, "error"), worse(down, "error")) == (True, False)
    # It was a warning before: at that level nothing is new.
    assert not worse(up, "warning")


@pytest.mark.parametrize(("level", "expected"), [("error", True), ("warning", True), ("note", True), ("never", False)])
def test_what_is_new_counts_from_the_level_on(level: str, expected: bool) -> None:
    assert worse(compare(side(), side(call("aten::foo"))), level) is expected


def test_a_note_is_no_error() -> None:
    result = compare(side(), side(call("mine::op")))
    assert {entry.severity for entry in result.new} == {"warning"}
    assert not worse(result, "error")
    assert worse(result, "warning")


def test_what_cannot_be_compared_is_said() -> None:
    mm = call("aten::mm")
    other = side(mm, model="other.py:Net", inputs=("y: float32[9]",), mode="train", complete=False)
    assert compare(side(mm), side(mm)).warnings == ()
    result = "\n".join(compare(side(mm), other).warnings)
    for words in ("two different models: model.py:Net and other.py:Net", "two different inputs"):
        assert words in result
    assert "two different runs: inference and train" in result
    assert "broke off" in result


def test_what_is_ignored_fails_nothing_until_it_no_longer_is() -> None:
    report = make_report(call("aten::foo"))
    ignored = Side(
        "ignored",
        msgspec.structs.replace(
            report, findings=tuple(msgspec.structs.replace(finding, ignored="known") for finding in report.findings)
        ),
    )
    assert not worse(compare(side(), ignored), "note")
    counts = compare(ignored, side(call("aten::foo")))
    assert "ignored: known -> no" in counts.changed[0].what
    assert worse(counts, "error")
