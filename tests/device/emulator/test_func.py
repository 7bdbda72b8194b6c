"""torch.func, forward mode, hooks and functions of one's own, on tensors of the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

pytestmark = [
    pytest.mark.usefixtures("mac"),
    # torch/_decomp/decompositions_for_jvp.py
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mul": lambda x: x * 2,
    "add": lambda x: x + 1,
    "reflected": lambda x: 1 - x,
    "div": lambda x: 1 / (x + 1),
    "sin": torch.sin,
    "cat": lambda x: torch.cat([x, torch.ones(2, device=x.device)]),
    "new_zeros": lambda x: x + x.new_zeros(3),
    "zeros_like": lambda x: x + torch.zeros_like(x),
    "index": lambda x: x[[0, 1]],
    "where": lambda x: torch.where(x > 1, x, 0.0),
}

TRANSFORMS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "jvp": lambda f, x: jvp(f, (x,), (torch.ones_like(x),))[1],
    "vjp": lambda f, x: vjp(f, x)[1](torch.ones_like(f(x)))[0],
    "grad": lambda f, x: grad(lambda y: f(y).sum())(x),
    "vmap": lambda f, x: vmap(f)(torch.stack([x, x])),
    "jacrev": lambda f, x: jacrev(f)(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "hessian": lambda f, x: hessian(lambda y: f(y).sum())(x),
    "functional.jvp": lambda f, x: torch.autograd.functional.jvp(f, x, torch.ones_like(x))[1],
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_transform_is_on_the_device_with_the_numbers_of_the_cpu(name: str, transform: str) -> None:
    """torch/_functorch: a transform's tensor has the device of the tensor inside."""
    function, x = FUNCTIONS[name], torch.arange(3.0)
    expected = TRANSFORMS[transform](function, x)
    result = TRANSFORMS[transform](function, x.to("mps"))
    assert result.is_mps
    assert torch.equal(result.cpu(), expected)


def test_forward_mode_of_a_linear_layer() -> None:
    """By torch.func it is taken apart; the kernel of MPS has no forward derivative (derivatives.yaml, ``linear``)."""
    weight, x = torch.ones(2, 3, device="mps"), torch.ones(3, device="mps")
    assert jvp(lambda y: F.linear(y, weight), (x,), (x,))[1].tolist() == [3, 3]
    with fwAD.dual_level(), pytest.raises(NotImplementedError, match="Trying to use forward AD with linear"):
        F.linear(fwAD.make_dual(x, x), weight)


def test_a_graph_of_make_fx_takes_other_values() -> None:
    x = torch.arange(3.0, device="mps")
    graph = make_fx(lambda y: torch.sin(y) + 1)(x)
    assert torch.equal(graph(x * 2), torch.sin(x * 2) + 1)


def test_dual_numbers() -> None:
    x = torch.arange(3.0, device="mps")
    with fwAD.dual_level():
        tangent = fwAD.unpack_dual(fwAD.make_dual(x, torch.ones_like(x)) * 2 + 1).tangent
        assert tangent is not None
        assert (tangent.device.type, tangent.tolist()) == ("mps", [2, 2, 2])


def test_a_dual_number_prints_both_parts_with_their_device() -> None:
    x = torch.ones(1, device="mps")
    with fwAD.dual_level():
        assert repr(fwAD.make_dual(x, x * 3)) == "tensor([1.], device='mps:0', tangent=tensor([3.], device='mps:0'))"
        assert repr(x) == "tensor([1.], device='mps:0')"


def test_gradients_of_each_sample() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to("mps")
    parameters: dict[str, torch.Tensor] = dict(net.named_parameters())
    x = torch.rand(5, 3, device="mps")

    def loss(given: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = functional_call(net, given, (sample[None],)).sum()
        return result

    grads = vmap(grad(loss), (None, 0))(parameters, x)
    assert all(each.is_mps and each.shape[0] == 5 for each in grads.values())


def test_a_move_inside_of_a_transform() -> None:
    x = torch.arange(3.0, device="mps")
    assert grad(lambda y: (y.cpu() * 2).sum())(x).is_mps
    assert vmap(lambda y: y.to("cpu") + 1)(x).device.type == "cpu"
    tangent = jvp(lambda y: y.to("cpu") * 2, (x,), (x,))[1]
    assert (tangent.device.type, tangent.tolist()) == ("cpu", [0, 2, 4])


class Double(torch.autograd.Function):
    """With all that torch.func asks of one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        del output
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * 2 + 0 * x

    @staticmethod
    def jvp(_ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent * 2


@pytest.mark.parametrize("transform", ["jvp", "grad", "vmap", "jacrev"])
def test_a_function_of_ones_own(transform: str) -> None:
    assert TRANSFORMS[transform](Double.apply, torch.ones(3, device="mps")).is_mps


def test_hooks_see_plain_tensors_of_the_device() -> None:
    seen: list[tuple[str, Any, str]] = []

    def note(name: str, tensor: torch.Tensor) -> None:
        seen.append((name, type(tensor), tensor.device.type))

    layer = nn.Linear(3, 2).to("mps")
    layer.register_forward_hook(lambda _m, _i, out: note("forward", out))

    def backward(_module: Any, grads: Any, _outputs: Any) -> None:
        note("backward", grads[0])

    layer.register_full_backward_hook(backward)
    layer.weight.register_hook(lambda g: note("gradient", g))
    layer.weight.register_post_accumulate_grad_hook(lambda p: note("accumulated", p))
    layer(torch.ones(1, 3, device="mps", requires_grad=True)).sum().backward()
    assert sorted(seen, key=lambda row: row[0]) == [
        ("accumulated", nn.Parameter, "mps"),
        ("backward", torch.Tensor, "mps"),
        ("forward", torch.Tensor, "mps"),
        ("gradient", torch.Tensor, "mps"),
    ]


@pytest.mark.parametrize("pin", [False, True])
def test_saved_on_the_cpu(*, pin: bool) -> None:
    """torch/autograd/graph.py, save_on_cpu: ``tensor.cpu()`` and back to ``tensor.device``."""
    x = torch.rand(3, device="mps", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=pin):
        (x * x).exp().sum().backward()
    assert x.grad is not None
    assert x.grad.is_mps
