"""What an operation should give: PyTorch's own on the CPU, in double or in exact integers.

The operation of a kernel's name is the functor's (aten/src/ATen/native/mps/kernels/*.metal), which
is the operator's name but for the table below.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opcheck.common.yaml_text import load_shipped
from opcheck.data.strict_yaml import read_as
from opcheck.model.records import Record

Function = Callable[..., Tensor]
_aten: Any = torch.ops.aten


class Operation(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``operations.yaml`` has of an operation; its head explains the fields."""

    call: str = ""
    parameters: tuple[float | int, ...] = ()
    whole: tuple[float | int, ...] = ()
    truth: tuple[float | int, ...] = ()


OPERATIONS = read_as(Path(__file__).with_name("operations.yaml"), dict[str, Operation])
_UNLISTED = Operation()


def parameters(operation: str, dtype: torch.dtype) -> tuple[float | int, ...]:
    """Return what the host passes to a functor in addition to the operands."""
    listed = OPERATIONS.get(operation, _UNLISTED)
    inexact = dtype.is_floating_point or dtype.is_complex
    return (not inexact and (listed.truth if dtype == torch.bool else listed.whole)) or listed.parameters


def _is_inexact(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _truncate(function: Function, x: Tensor) -> Tensor:
    """Return a function of floats; of integers it is computed in float32 and loses its fraction."""
    return function(x) if x.is_floating_point() else function(x.float()).long()


def _real(x: Tensor) -> Tensor:
    """Return integers in double: the CPU has the function for floats alone."""
    return x if x.dtype.is_floating_point or x.dtype.is_complex else x.double()


FUNCTIONS: dict[str, Function] = {
    "polygamma": lambda x, n: torch.polygamma(int(n), x),
    "copy_identity": lambda x: x,
    "copy_neg": torch.neg,
    "copy_conj": lambda x: torch.conj(x).resolve_conj(),
    "copy_conj_neg": lambda x: torch.neg(torch.conj(x).resolve_conj()),
    "silu": lambda x: x * torch.sigmoid(x) if x.is_complex() else _truncate(torch.nn.functional.silu, x),
    "round_decimals": lambda x, n: torch.round(x, decimals=int(n)),
    "pow_scalar": torch.pow,
    "clamp_scalar": torch.clamp,
    "clamp_min_scalar": torch.clamp_min,
    "clamp_max_scalar": torch.clamp_max,
    "add_alpha": lambda a, b, n: torch.add(a, b, alpha=n),
    "sub_alpha": lambda a, b, n: torch.sub(a, b, alpha=n),
    "lerp": lambda a, b, w: torch.lerp(a, b, w) if _is_inexact(a) else a + (b - a) * w,
    "native_dropout_mask_and_scale": lambda a, mask, scale: a * mask * scale,
    "lerp_alpha": lambda a, b, w: torch.lerp(a, b, w) if _is_inexact(a) else a + (b - a) * w,
    "addcmul": lambda a, b, c, n: torch.addcmul(a, b, c, value=n),
    "addcdiv": lambda a, b, c, n: torch.addcdiv(a, b, c, value=n),
    "where": lambda c, a, b: torch.where(c.bool(), a, b),
    "clamp": torch.clamp,
    "elu_backward": lambda g, x, a, s, i, r: _aten.elu_backward(g, a, s, i, bool(r), x),
    "leaky_relu_backward": lambda x, g, n: _aten.leaky_relu_backward(g, x, n, self_is_result=False),
    "shrink_backward": _aten.hardshrink_backward,
    "logaddexp": lambda a, b: torch.logaddexp(_real(a), _real(b)),
    "logaddexp2": lambda a, b: torch.logaddexp2(_real(a), _real(b)),
    "glu": lambda a, b: a * torch.sigmoid(b),
    "log_sigmoid_backward": lambda x, g: _aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())),
}

#: The allowed errors of results, and the largest operands (allowances.yaml).
_ALLOWED: dict[str, Any] = load_shipped(__file__, "allowances.yaml")
_HARD = tuple(_ALLOWED["hard"])
_ULPS, _LARGEST = (
    {name: float(number) for number, names in _ALLOWED[key].items() for name in names} for key in ("ulps", "largest")
)
#: The CPU's vectors and their remainder treat NaN differently (PyTorch 2.13).
_UNAGREED = frozenset(["elu_backward", "shrink_backward", "logit_backward"])
#: The largest term of a sum that cancels, of the operands: any formula in float32 rounds it.
_CANCELLED: dict[str, Callable[..., Tensor]] = {
    "gelu": torch.abs,
    "gelu_tanh": torch.abs,
    "gelu_backward": lambda g, x: g.abs() * (1 + x.abs()),
    "gelu_tanh_backward": lambda g, x: g.abs() * (1 + x.abs()),
}
_ROUNDED = 8 * 2.0**-23
#: The CPU's scalar code has another formula than its vectors, which any Mac uses (aten/native/cpu/Elu.h, 2.13).
_VECTORS_ALONE = frozenset(["elu"])
_USUAL, _LOOSE, _SHORT = 16.0, 512.0, 3.0


def function(operation: str) -> Function | None:
    """Return what an operation computes; None where this table and torch know none of that name."""
    listed = OPERATIONS.get(operation, _UNLISTED)
    if operation in FUNCTIONS:
        return FUNCTIONS[operation]
    if listed.call and not listed.parameters:
        called: Function = eval(f"lambda *x: {listed.call.format('*x')}", {"torch": torch})  # noqa: S307  (our own text)
        return called
    name = operation.removesuffix("_forward")
    for module in (torch, torch.special, _aten):
        candidate = getattr(module, name, None)
        if callable(candidate):
            computed: Function = candidate
            return computed
    return None


def allowed_units(operation: str, dtype: torch.dtype) -> float:
    """Return how many units in the last place a result may differ before it is wrong."""
    if dtype in (torch.float16, torch.bfloat16, torch.complex32):
        units = _ULPS.get(operation, _SHORT)
        return min(units + 1, _SHORT) if units else 0.0
    if dtype == torch.complex64:
        return 2 * _USUAL
    return _ULPS.get(operation, _LOOSE if operation.startswith(_HARD) else _USUAL)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that computes an operation on values of this dtype exactly, or nearly so."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


def leave_out(operation: str, operands: tuple[Tensor, ...]) -> Tensor | None:
    """Return where the operands' result is not defined, by Metal or by PyTorch; None: nowhere."""
    first, *rest = operands
    if "shift" in operation and not operation.startswith("shifted"):
        bits = {torch.bool: 1}.get(first.dtype) or torch.iinfo(first.dtype).bits
        amount = rest[0].to(torch.int64)
        return (amount < 0) | (amount >= bits) | (first.to(torch.int64) < 0)
    if not first.dtype.is_floating_point and not first.dtype.is_complex and rest:
        second = rest[0]
        if operation.startswith(("div", "fmod", "remainder")):
            least = 0 if first.dtype == torch.bool else torch.iinfo(first.dtype).min
            return (second == 0) | ((first == least) & (second == -1) if least else second == 0)
        if operation in {"gcd", "lcm"} and first.dtype != torch.bool:
            a, b = first.double().abs(), second.double().abs()
            least = torch.iinfo(first.dtype).min
            over = a * b > torch.iinfo(first.dtype).max if operation == "lcm" else a < 0
            return over | (first == least) & (least < 0) | (second == least) & (least < 0)
        if operation == "pow":
            return (second < 0) | (second > 64)
    if operation.startswith(("chebyshev", "hermite", "laguerre", "shifted")):
        order = rest[0].double()
        return ~((order >= 0) & (order <= 12) & (order == order.round())) | ~first.double().isfinite()
    if operation == "div_trunc" and first.dtype in {torch.float16, torch.bfloat16}:
        # Whether the quotient is rounded first is not agreed on: the CPU does so in vectors alone.
        return (first / rest[0]).trunc() != (first.double() / rest[0].double()).trunc()
    if operation in _UNAGREED:
        return torch.stack([operand.isnan() for operand in operands]).any(0)
    return _outside(operation, operands)


def _outside(operation: str, operands: tuple[Tensor, ...]) -> Tensor | None:
    """Return where an operand is outside of the function's domain."""
    first, *rest = operands
    if operation in _LARGEST:
        sizes = [(o if o.is_complex() else o.double()).abs() for o in operands]
        return torch.stack([size > _LARGEST[operation] for size in sizes]).any(0)
    if operation == "silu" and first.dtype in {torch.int32, torch.int64}:
        # As a float32 the largest exceed their type by 1.
        return first.float().double() >= torch.iinfo(first.dtype).max
    if operation == "polar":
        return (first.double() < 0) | ~rest[0].double().isfinite() | ~first.double().isfinite()
    return None


def cancelled_terms(operation: str, operands: Sequence[Tensor]) -> Tensor | float:
    """Return by how much the rounding of terms that cancel moves the results of an operation in float32."""
    if operation not in _CANCELLED:
        return 0.0
    return torch.nan_to_num(_CANCELLED[operation](*operands) * _ROUNDED, 0.0, 0.0)


def plain(operation: str, operands: tuple[Tensor, ...], parameters: tuple[float, ...]) -> Tensor | None:
    """Return what the CPU's plain arithmetic gives in the operands' precision; None where it has none."""
    if operation in _VECTORS_ALONE:
        return None
    try:
        return evaluate(operation, operands, parameters)
    except (RuntimeError, NotImplementedError):
        return None


def evaluate(operation: str, operands: tuple[Tensor, ...], parameters: tuple[float, ...]) -> Tensor:
    """Return the result in double, or in exact integers.

    Args:
        operation: of the kernel's name.
        operands: in double, complex of double, int64 or bool.
        parameters: of the functor's struct.

    Raises:
        KeyError: there is no such function.
    """
    computed = function(operation)
    if computed is None:
        raise KeyError(operation)
    try:
        return computed(*operands, *parameters)
    except RuntimeError:
        if operands[0].dtype != torch.bool:
            raise
        # The CPU refuses bool where the kernel computes with the integers 0 and 1.
        return computed(*(operand.long() for operand in operands), *parameters)
