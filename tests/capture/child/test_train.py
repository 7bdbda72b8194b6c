"""A training step on the simulated Mac: its phases, its loss, its optimizer, and whose backward a call is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opcheck.capture.child.run import run
from opcheck.capture.child.training import parse_optimizer
from opcheck.capture.parent import capture
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import UsageError
from opcheck.model.records import OpCall, Trace
from tests.made import make_target

PROGRAM = '''
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

X = {"x": torch.ones(4, 8)}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.first(x).tanh()
        hidden = hidden * 2
        return self.second(hidden)

class InPlace(Net):
    def forward(self, x):
        hidden = self.first(x)
        hidden.mul_(self.first.bias)
        return self.second(hidden)

class OwnLoss(Net):
    def forward(self, x):
        scores = super().forward(x)
        return {"scores": scores, "loss": scores.sum()}

class Losses(Net):
    def forward(self, x):
        scores = super().forward(x)
        return {"loss_a": scores.sum(), "loss_b": scores.max(), "none": torch.zeros((), device=x.device)}

class Number(Net):
    def forward(self, x):
        return super().forward(x).sum()

class Nested(Net):
    def forward(self, x):
        hidden = torch.fft.rfft(self.first(x))
        return [{"spectrum": hidden, "index": hidden.abs().argmax()}, (self.second(x),)]

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        three = torch.full((), 3.0, device="mps")
        return grad * three * x.square()

class Custom(Net):
    def forward(self, x):
        return self.second(Cube.apply(self.first(x)))

class Checkpointed(Net):
    reentrant = False

    def forward(self, x):
        return self.second(checkpoint(self.block, x + self.first.bias, use_reentrant=self.reentrant))

    def block(self, x):
        return self.first(x).sin()

class Reentrant(Checkpointed):
    reentrant = True

class Hooked(Net):
    def forward(self, x):
        hidden = self.first(x)
        hidden.register_hook(lambda grad: grad.clamp(-1, 1))
        return self.second(hidden)

class Parametrized(Net):
    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.first)

class Penalty(Net):
    def forward(self, x):
        x = x.clone().requires_grad_()
        scores = super().forward(x)
        (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
        return scores.sum() + slope.square().sum()

class Functional(Net):
    def forward(self, x):
        weights = dict(self.named_parameters())
        def loss(weights, x):
            return torch.func.functional_call(self.second, weights, (x,)).sum()
        second = {"weight": self.second.weight, "bias": self.second.bias}
        per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(second, x)
        return per_sample["weight"].square().sum() + self.first(x).sum()

class Frozen(Net):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)

class NoGraph(Net):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)

class Shared(Net):
    """One weight that two calls use, one that none does."""
    def forward(self, x):
        return self.first(self.first(x)).relu()

def _(kind):
    return lambda: (kind(), X)

net, in_place, own_loss, losses, number, nested = map(_, (Net, InPlace, OwnLoss, Losses, Number, Nested))
custom, checkpointed, reentrant, hooked = map(_, (Custom, Checkpointed, Reentrant, Hooked))
parametrized, penalty, functional = map(_, (Parametrized, Penalty, Functional))
frozen, no_graph, shared = map(_, (Frozen, NoGraph, Shared))
'''


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("user") / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    return file


def _capture(program: Path, name: str, **asked: str) -> Trace:
    request = CaptureRequest(
        model=f"{program}:{name}",
        target=make_target(),
        **{"mode": "train", "optimizer": "sgd", **asked},  # type: ignore[arg-type]
    )
    return run(request, _quiet).trace


def _quiet(text: str, *, seconds: float = 0.0) -> None:
    """Tell nobody."""


def _in(trace: Trace, phase: str) -> list[OpCall]:
    return [call for call in trace.calls if call.phase == phase]


def _ops(trace: Trace, phase: str) -> list[str]:
    return [call.op.removeprefix("aten::") for call in _in(trace, phase)]


def _backward(trace: Trace) -> list[tuple[str, str]]:
    """Each call of backward whose line is the program's: the operator and the line."""
    return [
        (call.op.removeprefix("aten::"), call.location.text)
        for call in _in(trace, "backward")
        if call.location is not None and call.location.file == "program.py"
    ]


FIRST, TWICE, LAST = ("hidden = self.first(x).tanh()", "hidden = hidden * 2", "return self.second(hidden)")


def test_a_step_has_its_phases_and_backward_the_lines_of_forward(program: Path) -> None:
    request = CaptureRequest(model=f"{program}:net", target=make_target(), mode="train", optimizer="sgd")
    trace = capture(request)
    assert trace.complete
    assert not trace.problems
    assert (trace.mode, trace.optimizer, trace.autocast) == ("train", "SGD", "")
    assert trace.loss == "the mean square of the floating outputs"
    assert _ops(trace, "forward") == ["linear", "tanh", "mul.Tensor", "linear", "pow.Tensor_Scalar", "mean"]
    assert _backward(trace) == [
        ("linear_backward", LAST),
        ("mul.Tensor", TWICE),
        ("tanh_backward", FIRST),
        ("linear_backward", FIRST),
    ]
    modules = [call.module for call in _in(trace, "backward") if call.location]
    assert modules == ["second", "Net", "Net", "first"]
    assert {call.module for call in trace.calls if not call.location} == {"", "loss", "SGD"}
    assert _ops(trace, "optimizer") == ["add_.Tensor"] * 4
    assert all(spec.device == "mps" for call in trace.calls for spec in (*call.inputs, *call.outputs))


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("own_loss", "the model's own loss"),
        ("losses", "the sum of loss_a, loss_b, none"),
        ("number", "the number that the model returned"),
        ("nested", "the mean square of the floating outputs"),
    ],
)
def test_which_number_is_minimized(program: Path, name: str, loss: str) -> None:
    trace = _capture(program, name)
    assert trace.complete
    assert trace.loss == loss
    # Only a loss that opcheck makes has calls of its own.
    made = [call for call in _in(trace, "forward") if call.module == "loss"]
    assert bool(made) is (name in {"losses", "nested"})


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        (
            "in_place",
            [
                ("linear_backward", LAST),
                ("mul.Tensor", "hidden.mul_(self.first.bias)"),
                ("mul.Tensor", "hidden.mul_(self.first.bias)"),
                ("sum.dim_IntList", "hidden.mul_(self.first.bias)"),
                ("linear_backward", "hidden = self.first(x)"),
            ],
        ),
        (
            "custom",
            [
                ("linear_backward", "return self.second(Cube.apply(self.first(x)))"),
                ("full", 'three = torch.full((), 3.0, device="mps")'),
                ("mul.Tensor", "return grad * three * x.square()"),
                ("pow.Tensor_Scalar", "return grad * three * x.square()"),
                ("linear_backward", "return self.second(Cube.apply(self.first(x)))"),
            ],
        ),
        ("checkpointed", [("linear", "return self.first(x).sin()"), ("cos", "return self.first(x).sin()")]),
        ("reentrant", [("linear", "return self.first(x).sin()"), ("cos", "return self.first(x).sin()")]),
        ("hooked", [("clamp", "hidden.register_hook(lambda grad: grad.clamp(-1, 1))")]),
        ("parametrized", [("_weight_norm_interface_backward", FIRST)]),
        ("shared", [("threshold_backward", "return self.first(self.first(x)).relu()")]),
        ("functional", [("linear_backward", 'return per_sample["weight"].square().sum() + self.first(x).sum()')]),
    ],
)
def test_whose_backward_a_call_is(program: Path, name: str, calls: list[tuple[str, str]]) -> None:
    trace = _capture(program, name)
    assert trace.complete, trace.problems
    result = _backward(trace)
    missing = Counter(calls) - Counter(result)
    assert not missing, result
    assert all(spec.device == "mps" for call in trace.calls for spec in (*call.inputs, *call.outputs))


def test_a_gradient_of_a_gradient_belongs_to_the_first_forward(program: Path) -> None:
    result = _backward(_capture(program, "penalty"))
    # Once for the slope, once more for its own gradient.
    assert result.count(("tanh_backward", FIRST)) == 3
    assert ("mm", LAST) in result


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("frozen", "no parameter of the model requires a gradient"),
        ("no_graph", "no output of the model depends on a parameter"),
    ],
)
def test_nothing_to_train_is_a_problem(program: Path, name: str, message: str) -> None:
    trace = _capture(program, name)
    assert not trace.complete
    (problem,) = trace.problems
    assert problem.kind == "nothing_to_train"
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("asked", "said", "calls"),
    [
        # One loop over the parameters, as on a Mac: PyTorch's foreach list has no mps.
        ("adamw", "AdamW", {"addcdiv_": 4, "addcmul_": 4, "lerp_.Scalar": 4, "zeros_like": 8}),
        ("adam:fused=true", "Adam(fused=True)", {"_fused_adam_": 1}),
        ("AdamW:foreach=true,lr=0.1", "AdamW(foreach=True, lr=0.1)", {"_foreach_sqrt": 1}),
        ("sgd:momentum=0.9", "SGD(momentum=0.9)", {"clone": 4, "add_.Tensor": 4}),
    ],
)
def test_the_optimizer_goes_as_on_a_mac(program: Path, asked: str, said: str, calls: dict[str, int]) -> None:
    trace = _capture(program, "net", optimizer=asked)
    assert trace.complete
    assert trace.optimizer == said
    counts = Counter(_ops(trace, "optimizer"))
    assert {name: counts[name] for name in calls} == calls
    assert ("_foreach_sqrt" in counts) is ("foreach" in asked)


def test_what_the_optimizer_refuses_on_a_mac_is_a_problem(program: Path) -> None:
    trace = _capture(program, "net", optimizer="adam:capturable=true")
    assert not trace.complete
    (problem,) = trace.problems
    assert problem.message.startswith(
        "PyTorch refuses this on a Mac: AssertionError: If capturable=True, params and state_steps must be on"
    )


def test_an_optimizer_that_evaluates_the_model_itself(program: Path) -> None:
    trace = _capture(program, "net", optimizer="lbfgs:max_iter=2,max_eval=2")
    assert trace.complete
    evaluations = _ops(trace, "forward").count("tanh")
    assert evaluations == _ops(trace, "backward").count("tanh_backward") == 2


def test_float16_scales_its_loss_and_steps_by_the_scaler(program: Path) -> None:
    trace = _capture(program, "net", autocast="float16", optimizer="adamw")
    assert trace.complete
    assert trace.autocast == "float16"
    linear = next(call for call in trace.calls if call.op == "aten::linear")
    assert {spec.dtype for spec in linear.inputs} == {"float16"}
    steps = _ops(trace, "optimizer")
    assert "_amp_foreach_non_finite_check_and_unscale_" in steps
    assert steps[-1] == "_amp_update_scale_"
    assert "addcdiv_" in steps
    weights = {spec.dtype for call in _in(trace, "optimizer") for spec in call.outputs}
    assert weights == {"float32"}


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ("adamx", "torch.optim has no optimizer 'adamx'", "did you mean Adamax, Adam"),
        ("adam:fusd=true", "Adam takes no 'fusd'", "it takes lr, betas"),
        ("adam:fused", "not an argument: 'fused'", "write NAME=VALUE, with commas between them, and values as in YAML"),
        ("adam:lr=[", "not arguments: 'lr=['", "write NAME=VALUE, with commas between them, and values as in YAML"),
        ("zzz", "torch.optim has no optimizer 'zzz'", "it has Adadelta, Adafactor, Adagrad, Adam"),
    ],
)
def test_an_optimizer_that_there_is_not(asked: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_optimizer(asked)
    lines = str(caught.value).splitlines()
    assert lines[0] == message
    assert lines[1].startswith(f"  in: --optimizer {asked}")
    assert lines[2].startswith(f"  help: {hint}")


def test_arguments_of_an_optimizer() -> None:
    chosen = parse_optimizer("adam:betas=[0.5, 0.9],lr=1.0")
    assert chosen.arguments == {"betas": [0.5, 0.9], "lr": 1.0}
    assert str(chosen) == "Adam(betas=[0.5, 0.9], lr=1.0)"
