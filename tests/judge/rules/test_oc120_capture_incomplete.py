from __future__ import annotations

import pytest

from opcheck.common.vocabulary import SEVERITIES
from opcheck.model.records import Finding, Problem, SourceLocation
from tests.judge.rules.checking import findings_by
from tests.made import call, problem


def test_an_incomplete_run_is_an_error_with_the_model_s_own_message() -> None:
    (finding,) = findings_by(
        "OC120",
        call("aten::mm"),
        complete=False,
        problems=(problem("model_raised", "the model raised ValueError: two tokens"),),
    )
    assert finding.severity == "error"
    assert finding.message == "the model raised ValueError: two tokens"
    assert "--input" in finding.hint


def test_an_incomplete_run_without_a_problem_is_told_too() -> None:
    (finding,) = findings_by("OC120", call("aten::mm"), complete=False)
    assert finding.message == "the run ended early"


def guess(op: str, line: int, *, kind: str = "guess", answer: str = "ones") -> Problem:
    place = SourceLocation(file="m.py", line=line)
    return Problem(kind=kind, message="", op=op, answered=answer, count=2, location=place)


def test_the_guesses_of_one_operator_are_one_warning() -> None:
    problems = (guess("aten::nonzero", 1), guess("aten::nonzero", 2, answer="zeros"))
    first, second = findings_by("OC120", call("aten::mm"), problems=(*problems, guess("aten::item", 3)))
    assert first.severity == second.severity == "warning"
    assert first.op == "aten::nonzero"
    assert first.count == 4
    assert "answered ones, or zeros" in first.message
    assert [str(place.location) for place in first.locations] == ["m.py:1", "m.py:2"]
    assert second.op == "aten::item"


def test_what_only_checks_values_is_a_note() -> None:
    problems = (guess("aten::all", 1, kind="value_check", answer="True"), guess("aten::all", 2))
    warning, note = sorted(findings_by("OC120", call("aten::mm"), problems=problems), key=by_severity)
    assert (warning.severity, note.severity) == ("warning", "note")
    assert "go no other way" in note.message
    assert "go no other way" not in warning.message
    assert [len(item.locations) for item in (warning, note)] == [1, 1]


def by_severity(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


@pytest.mark.parametrize("problems", [(), (problem("module_not_called"),)])
def test_silent_on_a_whole_run(problems: tuple[object, ...]) -> None:
    assert not findings_by("OC120", call("aten::mm"), problems=problems)
