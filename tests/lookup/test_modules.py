"""What ``opcheck op`` says of a module is what an audit of a small module says."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opcheck.data.registrations import OpLists, load
from opcheck.judge.judge import OUTCOMES
from opcheck.lookup.plain_call import OperatorLookup, target

torch = pytest.importorskip("torch")

from scripts.python_calls import examples  # noqa: E402 - it needs torch

#: A lazy module has no parameters before its first call, so that an audit of it alone breaks off.
NAMES = sorted(name for name in examples() if name.startswith("nn.") and name.count(".") == 1 and "Lazy" not in name)
LINES = [release.line for release in load().releases]
TENSORS = {
    "torch": torch,
    "nn": torch.nn,
    "x": lambda *shape: torch.rand(shape),
    "ints": lambda below, *shape: torch.randint(below, shape),
}


def audited(name: str, line: str) -> Any:
    """The report of the first example of a module."""
    import opcheck

    call = ast.parse(examples()[name][0].replace(".to('mps')", ""), mode="eval").body
    assert isinstance(call, ast.Call)

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), name, "eval"), TENSORS)  # noqa: S307 - our own examples

    torch.manual_seed(0)
    return opcheck.audit(value(call.func).eval(), tuple(map(value, call.args)), torch=line)


def agrees(name: str, line: str, lookup: OperatorLookup) -> None:
    calls = lookup.operators.calls(name, line)
    if calls is None:
        return  # the release lacks it
    report = audited(name, line)
    # What a convolution runs is recorded in its place (scripts/opinfo/record.py).
    if not any("convolution" in op for op in calls.always):
        assert {group.op for group in report.groups} == {*calls.always}
    worst = max(
        ((group.status, group.kind) for group in report.groups),
        key=lambda outcome: OUTCOMES[outcome].severity,
        default=("native", None),
    )
    verdict = lookup.verdict(name, target(line, "26.0"), "float32")
    assert (verdict.status, verdict.kind) == worst


@pytest.mark.parametrize(("name", "line"), [("nn.CTCLoss", "2.9"), ("nn.Conv3d", "2.2"), ("nn.GRU", "2.15")])
def test_a_module_is_answered_as_an_audit_answers(name: str, line: str, lookup: OperatorLookup) -> None:
    agrees(name, line, lookup)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # nn.Transformer says it of its own layers
@settings(max_examples=40)
@given(name=st.sampled_from(NAMES), line=st.sampled_from(LINES))
def test_every_module_is_answered_as_an_audit_answers(name: str, line: str) -> None:
    agrees(name, line, OperatorLookup(load()))


def test_every_recorded_call_has_a_verdict_in_the_newest_release(lists: OpLists, lookup: OperatorLookup) -> None:
    line = lists.releases[-1].line
    unknown = [name for name in NAMES if lookup.verdict(name, target(line, "26.0"), "float32").status == "unknown"]
    assert unknown == []
