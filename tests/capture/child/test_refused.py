"""A composite that refuses a call in front of every kernel, as a Mac does."""

from __future__ import annotations

import msgspec
import pytest
import torch

from opcheck.capture.child.endings import refused_call, refused_operator
from opcheck.capture.child.run import _problem
from opcheck.data.registrations import load
from opcheck.data.statement_model import ErrorText
from opcheck.judge.judge import judge
from opcheck.model.records import Problem
from tests.made import make_statement
from tests.simulator.mac import recorded, target

LISTS = load()
STATEMENTS = LISTS.statements.by_id.values()
HALF = torch.zeros(4, 16, dtype=torch.float16)


def raised() -> tuple[Problem, str]:
    with pytest.raises(RuntimeError, match="Unsupported dtype Half") as result:
        recorded(torch.fft.rfft, HALF)
    problem = Problem(
        kind="model_raised", message=f"the model raised RuntimeError: {result.value}", op=refused_operator(result.value)
    )
    return problem, problem.op


def test_the_operator_that_raised_is_known() -> None:
    assert raised()[1] == "aten::fft_rfft"


def test_a_text_that_a_mac_prints_is_a_refused_call() -> None:
    problem, _ = raised()
    call = refused_call(target("2.13"), problem, "forward", STATEMENTS)
    assert call is not None
    assert (call.op, call.phase) == ("aten::fft_rfft", "forward")
    assert call.refusal == ("fft-half", "Unsupported dtype Half")
    verdict = judge(call, target("2.13"), LISTS)
    assert verdict.status == "unsupported"
    assert verdict.prints == "Unsupported dtype Half"
    assert "refuses half precision" in verdict.because


@pytest.mark.parametrize(
    ("release", "macos", "changes"),
    [
        ("2.2", "15.0", {}),  # the statement begins with 2.3
        ("2.13", "13.0", {}),  # and with macOS 14
        ("2.13", "15.0", {"op": ""}),
        ("2.13", "15.0", {"kind": "timeout"}),
        ("2.13", "15.0", {"message": "the model raised RuntimeError: two tokens"}),
        ("2.13", "15.0", {"message": "the model raised ValueError: Unsupported dtype Half"}),
    ],
)
def test_anything_else_is_none(release: str, macos: str, changes: dict[str, str]) -> None:
    problem = msgspec.structs.replace(raised()[0], **changes)
    assert refused_call(target(release, macos), problem, "forward", STATEMENTS) is None


def test_what_python_raises_has_no_operator() -> None:
    def raises() -> None:
        raise RuntimeError("Unsupported dtype Half")

    with pytest.raises(RuntimeError) as result:
        raises()
    assert refused_operator(result.value) == ""


def test_a_short_text_says_nothing() -> None:
    statement = make_statement("short", error=ErrorText(type="RuntimeError", text="bad {x}"))
    problem = Problem(kind="model_raised", message="the model raised RuntimeError: bad Half", op="aten::mm")
    assert refused_call(target(), problem, "forward", [statement]) is None


def test_the_problem_of_a_run_names_it() -> None:
    recorder = recorded(lambda x: x, HALF)
    with pytest.raises(RuntimeError) as result:
        recorded(torch.fft.rfft, HALF)
    assert _problem(result.value, recorder).op == "aten::fft_rfft"
