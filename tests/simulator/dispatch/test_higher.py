"""Higher-order operators in a program that compiles nothing: the operators of their eager form."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as hop_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.dispatch.routes import make_higher_route
from opcheck.simulator.errors import NotSimulatedError
from tests.simulator.mac import names, recorded

BIG = torch.zeros(200, 200)

#: torch/nn/attention/flex_attention.py itself raises for a device that it does not know.
takes_mps = pytest.mark.skipif(
    Version.parse(torch.__version__) < Version(2, 13),
    reason="the Python of the installed torch refuses mps for every target",
)


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the capture does: what would be compiled runs as it is."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flex_attention advises to compile it
        yield


def _cond(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def _while(x: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y.sin()), (start, x))


def _sin(row: torch.Tensor, *_rest: object) -> torch.Tensor:
    return row.sin()


@pytest.mark.parametrize(
    ("run", "ran"),
    [
        (_cond, "sin"),
        (_while, "sin"),
        (lambda x: hop_map(_sin, x), "sin"),
        (lambda x: scan(lambda c, y: (c + y, c * y), x[0] * 0, x), "mul.Tensor"),
        (lambda x: associative_scan(torch.add, x, 0, combine_mode="generic"), "add.Tensor"),
        pytest.param(lambda x: flex_attention(*[x.view(1, 1, 2, 2)] * 3), "bmm", marks=takes_mps),
    ],
)
def test_the_operators_of_the_eager_form(run: Callable[..., Any], ran: str) -> None:
    assert ran in names(run, torch.ones(2, 2))


def test_a_branch_on_an_unknown_value_is_a_guess() -> None:
    recorder = recorded(_cond, BIG)
    (problem,) = recorder.problems()
    assert problem.kind == "guess"
    assert [entry.call.route.name for entry in recorder.calls][-1] == "aten::cos"


@takes_mps
@pytest.mark.parametrize(
    ("release", "text"), [("2.12", "FlexAttention is only supported on CUDA, CPU or HPU devices. "), ("2.13", None)]
)
def test_flex_attention_takes_mps_since_2_13(release: str, text: str | None) -> None:
    calls = recorded(lambda x: flex_attention(x, x, x), torch.ones(1, 1, 2, 16), release=release).calls
    refused = [entry.call for entry in calls if entry.call.refusal]
    if text is None:
        assert not refused
        return
    (call,) = refused
    assert call.route.name == "higher_order::flex_attention"
    assert call.refusal == ("flex_attention_device", f"{text}Found input tensors on mps device.")
    assert len(call.inputs) == 3


def test_one_without_an_eager_form_is_said() -> None:
    class Formless(torch._ops.HigherOrderOperator):
        def __call__(self, *args: Any) -> Any:
            return super().__call__(*args)

    body = make_higher_route(Formless("opcheck_formless"), current()).body
    assert body is not None
    with pytest.raises(NotSimulatedError, match="opcheck_formless has no form that runs without"):
        body(torch.ones(2))
