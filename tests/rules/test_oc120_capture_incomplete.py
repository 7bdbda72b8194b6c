from __future__ import annotations

import pytest

from tests.made import call, problem
from tests.rules.found import found


def test_an_incomplete_run_is_an_error_with_the_model_s_own_message() -> None:
    (finding,) = found(
        "OC120",
        call("aten::mm"),
        complete=False,
        problems=(problem("model_raised", "the model raised ValueError: two tokens"),),
    )
    assert finding.severity == "error"
    assert finding.message == "the model raised ValueError: two tokens"
    assert "--input" in finding.hint


def test_an_incomplete_run_without_a_problem_is_told_too() -> None:
    (finding,) = found("OC120", call("aten::mm"), complete=False)
    assert finding.message == "the run did not come to its end"


def test_a_guess_is_a_warning() -> None:
    (finding,) = found("OC120", call("aten::mm"), problems=(problem("guess"),))
    assert finding.severity == "warning"


@pytest.mark.parametrize("problems", [(), (problem("module_not_called"),)])
def test_silent_on_a_whole_run(problems: tuple[object, ...]) -> None:
    assert not found("OC120", call("aten::mm"), problems=problems)
