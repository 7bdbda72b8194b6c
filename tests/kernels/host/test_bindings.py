"""Calls of each operator, bound as the host side does: the release's kernels agree with the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("llvmlite")

import torch
from torch import Tensor

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import values
from opcheck.kernels.host import bindings, pointwise_calls, release_kernels
from opcheck.kernels.host.host_call import HostCall, UnboundError
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.numerics.child.float64 import Float64Call
from opcheck.numerics.kernels.child.wrong_results import find_wrong

pytestmark = pytest.mark.wheel
aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)


@functools.cache
def release(name: str) -> release_kernels.ReleaseKernels:
    machine = KernelMachine(default_cache().parent / "kernels", optimized=True)
    return release_kernels.of_release(name, machine)


def host_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HostCall:
    call = Float64Call(func, args, kwargs)
    outputs = tuple(call.result_tensors(func(*args, **kwargs)))
    return HostCall(func, func._schema.name.split("::")[1], call.arguments(), outputs)


def kernels_of(torch_release: str, func: Any, *args: Any, **kwargs: Any) -> str:
    """The kernels that a call launches, whose results are the CPU's up to the band."""
    call = host_call(func, args, kwargs)
    bound = bindings.bind(call, release(torch_release))
    bound.run()
    wrong, compared = find_wrong(call, bound)
    assert wrong is None, wrong
    assert compared
    return bound.kernels


def drawn(*shape: int, dtype: torch.dtype = torch.float32, salt: int = 1) -> Tensor:
    return torch.randn(*shape, generator=values.generator(salt)).to(dtype)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "inner rows": lambda x: x[:, 3:30],
    "offset": lambda x: x[1:],
}
NAMES = {
    "contiguous": "dense_scalar",
    "transposed": "dense_scalar",
    "every second": "strided",
    "inner rows": "inner_contiguous",
    "offset": "dense_scalar",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unary_operators_take_the_form_of_their_layout(layout: str) -> None:
    x = LAYOUTS[layout](drawn(7, 33))
    assert kernels_of("2.15.0", aten.exp.default, x) == f"exp_{NAMES[layout]}_float_float"
    assert kernels_of("2.8.0", aten.exp.default, x).startswith("exp_")


def test_many_elements_are_computed_by_four() -> None:
    assert kernels_of("2.15.0", aten.exp.default, drawn(1 << 18)) == "exp_dense_float_float"
    x, y = drawn(1 << 18), drawn(1 << 18, salt=2)
    assert kernels_of("2.15.0", aten.mul.Tensor, x, y) == "mul_dense_ilp4_float_float"


def test_binary_operators_take_the_form_of_their_operands() -> None:
    x, y = drawn(7, 33), drawn(7, 33, salt=2)
    for other, kernel in (
        (y, "dense_float_float"),
        (2.5, "dense_scalar_float_float"),
        (3, "dense_scalar_float_float"),
        (y[0], "dense_broadcast_float_float"),
        (y[:, :1], "strided_float_float"),
        (y.half(), "dense_cast_float_float"),
    ):
        assert kernels_of("2.15.0", aten.mul.Tensor, x, other) == f"mul_{kernel}"
    assert kernels_of("2.15.0", aten.sub.Tensor, x, y, alpha=3) == "add_alpha_dense_float_float_float"
    assert kernels_of("2.8.0", aten.sub.Tensor, x, y, alpha=3) == "sub_alpha_dense_float_float_float"
    assert kernels_of("2.8.0", aten.mul.Tensor, x.half(), 2.5) == "mul_strided_cast_half"
    assert kernels_of("2.15.0", aten.gt.Scalar, x, 0.5) == "gt_dense_scalar_bool_float"


#: Operators of one and two operands with further arguments: each entry of the table that is no plain name.
CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.add.Tensor, (drawn(5, 9), drawn(5, 9, salt=2)), {"alpha": 2}),
    (aten.addcmul.default, (drawn(9), drawn(9, salt=2), drawn(9, salt=3)), {"value": 0.1}),
    (aten.clamp.default, (drawn(33), -0.5, 0.5), {}),
    (aten.clamp.default, (drawn(33), None, 0.5), {}),
    (aten.clamp_min.default, (drawn(33), 0.5), {}),
    (aten.div.Tensor, (torch.arange(9), 2), {}),
    (aten.div.Tensor_mode, (drawn(33), drawn(33, salt=2)), {"rounding_mode": "floor"}),
    (aten.elu.default, (drawn(33).abs() + 0.1,), {}),
    (aten.gelu.default, (drawn(33),), {}),
    (aten.gelu.default, (drawn(33),), {"approximate": "tanh"}),
    (aten.gelu_backward.default, (drawn(33), drawn(33, salt=2)), {}),
    (aten.hardshrink.default, (drawn(33),), {}),
    (aten.leaky_relu_backward.default, (drawn(33), drawn(33, salt=2), 0.1, False), {}),
    (aten.lerp.Scalar, (drawn(33), drawn(33, salt=2), 0.3), {}),
    (aten.lerp.Tensor, (drawn(33), drawn(33, salt=2), drawn(33, salt=3)), {}),
    (aten.maximum.default, (drawn(33), drawn(33, salt=2)), {}),
    (aten.nan_to_num.default, (torch.tensor([1.0, float("nan"), float("inf")]),), {}),
    (aten.pow.Tensor_Scalar, (drawn(33).abs() + 0.1, 2), {}),
    (aten.pow.Tensor_Scalar, (drawn(33).abs() + 0.1, 3.5), {}),
    (aten.relu.default, (drawn(33),), {}),
    (aten.remainder.Tensor, (drawn(33), drawn(33, salt=2).abs() + 0.5), {}),
    (aten.round.decimals, (drawn(33),), {"decimals": 1}),
    (aten.silu_backward.default, (drawn(33), drawn(33, salt=2)), {}),
    (aten.softplus.default, (drawn(33),), {}),
    (aten.where.self, (drawn(33) > 0, drawn(33), drawn(33, salt=2)), {}),
    (aten.bitwise_and.Tensor, (torch.arange(33), torch.arange(33).flip(0)), {}),
    (aten.native_layer_norm.default, (drawn(6, 33), [33], drawn(33), drawn(33, salt=2), 1e-5), {}),
    (aten.native_layer_norm.default, (drawn(6, 33), [33], None, None, 1e-5), {}),
    (aten.native_layer_norm.default, (drawn(2, 5000), [5000], drawn(5000), drawn(5000), 1e-5), {}),
    (aten._fused_rms_norm.default, (drawn(6, 33), [33], drawn(33), 1e-5), {}),
    (aten._softmax.default, (drawn(6, 33), -1, False), {}),
    (aten._softmax.default, (drawn(2, 33, 3), 1, False), {}),
    (aten._log_softmax.default, (drawn(6, 33), -1, False), {}),
    (aten.sum.default, (drawn(6, 33),), {}),
    (aten.sum.dim_IntList, (drawn(6, 33).t(), [0]), {}),
    (aten.mean.dim, (drawn(6, 33), [1], True), {}),
    (aten.amax.default, (drawn(6, 33), [1]), {}),
    (aten.argmax.default, (drawn(6, 33), 1), {}),
    (aten.var.correction, (drawn(6, 33), [1]), {"correction": 0}),
    (aten.any.dim, (drawn(6, 33) > 2, 1), {}),
    (aten.prod.default, (drawn(9),), {}),
    (aten.count_nonzero.dim_IntList, (drawn(6, 33), [0]), {}),
    (aten.linalg_vector_norm.default, (drawn(6, 33),), {}),
    (aten.cumsum.default, (drawn(6, 33), 1), {}),
    (aten.cumsum.default, (drawn(33, 40), 0), {}),
    (aten.logcumsumexp.default, (drawn(6, 33), 1), {}),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(CALLS)))
def test_calls_agree_with_the_cpu(place: int) -> None:
    func, args, kwargs = CALLS[place]
    assert kernels_of("2.15.0", func, *args, **kwargs)


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_of_halves_agree_with_the_cpu(dtype: torch.dtype) -> None:
    x, w = drawn(6, 33, dtype=dtype), drawn(33, dtype=dtype, salt=2)
    assert kernels_of("2.15.0", aten.native_layer_norm.default, x, [33], w, w, 1e-5)
    assert kernels_of("2.15.0", aten._softmax.default, x, -1, False)
    assert kernels_of("2.15.0", aten.sum.dim_IntList, x, [1])
    assert kernels_of("2.15.0", aten.cumsum.default, x, 1)


#: Operators whose domain is not the whole line, or that the CPU has not in float32, or of other numbers of operands.
_OWN = {"clamp", "where", "acos", "asin", "atanh", "erfinv", "special_entr", "logit_backward", "complex", "polar"}


@pytest.mark.parametrize("name", sorted(pointwise_calls.table()))
def test_each_plain_operator_of_the_table_agrees_with_the_cpu(name: str) -> None:
    func = getattr(getattr(aten, name, None), "default", None) or getattr(getattr(aten, name, None), "Tensor", None)
    if func is None or name in _OWN:
        pytest.skip("tried above, or not by a plain call")
    count = sum(argument.type.kind() == "TensorType" for argument in func._schema.arguments)
    required = sum(not argument.has_default_value() for argument in func._schema.arguments)
    if count != required:
        pytest.skip("it has further arguments")
    operands = tuple(drawn(5, 9, salt=salt).abs() + 0.1 for salt in range(count))
    try:
        call = host_call(func, operands, {})
    except RuntimeError:
        operands = tuple(torch.arange(1, 46).view(5, 9) % (7 + salt) for salt in range(count))
        call = host_call(func, operands, {})
    try:
        bound = bindings.bind(call, release("2.15.0"))
    except UnboundError as error:
        pytest.skip(str(error))
    bound.run()
    assert find_wrong(call, bound)[0] is None


def test_a_call_without_a_kernel_is_refused_with_the_name() -> None:
    with pytest.raises(UnboundError, match="gelu float float"):
        kernels_of("2.8.0", aten.gelu.default, drawn(9))
