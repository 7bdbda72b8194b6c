"""Repeats a device's call on the CPU, in float64 and in its own dtype; compares results with several right answers."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opcheck.common.yaml_text import load_shipped
from opcheck.numerics.child.float64 import PRODUCTS, WIDE, Float64Call, widen_dtype
from opcheck.numerics.child.kept_tensors import KeptTensor, restore
from opcheck.tracing.torch_private.trees import tensors

# -- formulas --------------------------------------------------------------------------------------
#
# Operators that only a GPU has, or that take what a GPU made, written with those of the CPU.  Each
# formula returns first the results that can be compared with the device's; what comes after them
# (the state of a generator, sums that a backward reads) is the kernel's own.  Arguments go by the
# names of the schema, the same in torch 2.8 to 2.15 (native_functions.yaml).

aten = torch.ops.aten

Given = Mapping[str, Any]


def kernel_for(func: Any) -> Callable[..., Any]:
    """Return what makes the operator's results on the CPU: the operator itself, or a formula of this module."""
    formula = FORMULAS.get(func.name())
    if formula is None:
        own: Callable[..., Any] = func
        return own
    return lambda *args, **kwargs: formula(Float64Call(func, args, kwargs).arguments())


def _weights(given: Given) -> torch.Tensor:
    """Return how much each query takes of each value (torch/nn/functional.py, scaled_dot_product_attention)."""
    if given["dropout_p"]:
        raise NotImplementedError("its dropout draws other numbers than the CPU's")
    query, key = given["query"], _repeat_heads(given, "key")
    scores = query @ key.mT * _scale(given)
    if given["is_causal"]:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    bias = given.get("attn_bias", given.get("attn_mask"))
    if bias is not None:
        boolean = bias.dtype == torch.bool
        scores = scores.masked_fill(~bias, -math.inf) if boolean else scores + bias
    return scores.softmax(-1)


def _scale(given: Given) -> float:
    scale: float | None = given["scale"]
    return 1 / math.sqrt(given["query"].shape[-1]) if scale is None else scale


def _repeat_heads(given: Given, name: str) -> torch.Tensor:
    """Repeat the heads that several heads of the query share, once for each."""
    tensor: torch.Tensor = given[name]
    return tensor.repeat_interleave(given["query"].shape[-3] // tensor.shape[-3], -3)


def _attention(given: Given) -> tuple[torch.Tensor]:
    return (_weights(given) @ _repeat_heads(given, "value"),)


def _attention_backward(given: Given) -> tuple[torch.Tensor, ...]:
    """Return the derivative of the formula above; below a dispatch mode there is no autograd to take it."""
    query, key, value = given["query"], given["key"], given["value"]
    if key.shape[-3] != query.shape[-3]:
        raise NotImplementedError("several heads share one")
    grad = given["grad_out"] if "grad_out" in given else given["grad_out_"]
    weights, factor = _weights(given), _scale(given)
    wanted = grad @ value.mT
    scores = weights * (wanted - (wanted * weights).sum(-1, keepdim=True))
    return scores @ key * factor, scores.mT @ query * factor, weights.mT @ grad


def _not_transposed(arguments: Given) -> dict[str, Any]:
    return {"transposed": False, "output_padding": [0] * len(arguments["padding"])}


def _convolution(given: Given) -> Any:
    first = [given[name] for name in ("self", "weight", "bias", "stride", "padding", "dilation")]
    return aten.convolution(*first, groups=given["groups"], **_not_transposed(given))


def _convolution_backward(given: Given) -> Any:
    return aten.convolution_backward(
        *(given[name] for name in ("grad_output", "self", "weight")), bias_sizes=[given["grad_output"].shape[1]],
        **{name: given[name] for name in ("stride", "padding", "dilation", "groups", "output_mask")},
        **_not_transposed(given),
    )  # fmt: skip


def _linear_backward(given: Given) -> tuple[torch.Tensor, ...]:
    inputs, grad, weight = given["self"], given["grad_output"], given["weight"]
    rows, columns = inputs.flatten(0, -2), grad.flatten(0, -2)
    gradients = grad @ weight, columns.mT @ rows, columns.sum(0)
    return tuple(itertools.compress(gradients, given["output_mask"]))


def _log_sigmoid_backward(given: Given) -> tuple[torch.Tensor]:
    """Compute without the buffer, which only the CPU's forward fills (native/Activation.cpp)."""
    return (given["grad_output"] * torch.sigmoid(-given["self"]),)


_FUSED = tuple(f"aten::_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn"))
FORMULAS: dict[str, Callable[[Given], Any]] = {
    **dict.fromkeys((*_FUSED, "aten::_scaled_dot_product_attention_math_for_mps"), _attention),
    **dict.fromkeys((f"{name}_backward" for name in _FUSED), _attention_backward),
    "aten::_mps_convolution": _convolution,
    "aten::mps_convolution_backward": _convolution_backward,
    "aten::linear_backward": _linear_backward,
    "aten::log_sigmoid_backward": _log_sigmoid_backward,
}


# -- the call again ---------------------------------------------------------------------------------

#: Facts about operators (cpu_reference.yaml), keyed by overload packet where the names are complete.
_TABLE: dict[str, Any] = load_shipped(__file__)
_SUMS = tuple(f"aten::{name}" for name in _TABLE["sums"])
_CHOOSING = {getattr(aten, name) for name in _TABLE["choosing"]}
_POOLS, DETERMINED = (
    {getattr(aten, name): row for name, row in _TABLE[key].items()} for key in ("pools", "determined")
)
#: Sums whose elements each depend on all others.
_OF_ALL = "aten::_fft_"
_HALVES = frozenset({torch.float16, torch.bfloat16})


def in_float64(call: Float64Call, like: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Return what a call makes in float64 of the same numbers.

    Args:
        call: with its tensors kept.
        like: its first result on the device.

    Raises:
        Exception: whatever the CPU's kernel raises where it does not take them.
    """
    return _on_cpu(call.for_wide_results(like), widen_dtype)


def in_its_dtype(call: Float64Call) -> list[torch.Tensor] | None:
    """Return the CPU's result in the same dtype, rounded from float32 where it has no kernel; None: there is none."""
    try:
        return _on_cpu(call, lambda dtype: dtype)
    except Exception:  # noqa: BLE001 - the CPU lacks the dtype
        operands = tensors(restore((call.args, call.kwargs)))
    rounded = {tensor.dtype for tensor in operands} & _HALVES
    if len(rounded) != 1:
        return None
    (half,) = rounded
    try:
        results = _on_cpu(call, lambda dtype: torch.float32 if dtype in _HALVES else dtype)
    except Exception:  # noqa: BLE001 - nor that
        return None
    return [tensor.to(half) if tensor.dtype == torch.float32 else tensor for tensor in results]


def sizes(call: Float64Call) -> list[torch.Tensor] | None:
    """Return what was summed for each element, without its sign; None: the call makes no sums."""
    name = call.func.name()
    if name.startswith(_OF_ALL):
        exact = in_float64(call)
        return [tensor.abs().square().mean().sqrt().expand(tensor.shape) for tensor in exact]
    if "_backward" in name and not name.startswith(PRODUCTS):
        return _of_gradient(call)
    if not name.startswith((*PRODUCTS, *_SUMS)):
        return None

    def take_magnitude(value: Any) -> Any:
        numeric = isinstance(value, KeptTensor) and value.dtype in WIDE
        return value.with_memory(torch.abs) if numeric else value

    try:
        return [tensor.abs() for tensor in in_float64(call.with_changed(take_magnitude))]
    except Exception:  # noqa: BLE001 - then there is no such number
        return None


def _of_gradient(call: Float64Call) -> list[torch.Tensor] | None:
    """Return the largest incoming gradient: the outgoing ones are differences of such values."""
    gradients = [
        value for name, value in call.arguments().items() if name.startswith("grad") and isinstance(value, KeptTensor)
    ]
    if not gradients or not gradients[0].memory.numel():
        return None
    largest = gradients[0].memory.abs().max().double()
    return [largest.expand(tensor.shape) for tensor in in_float64(call)]


def _on_cpu(call: Float64Call, change: Callable[[torch.dtype], torch.dtype]) -> list[torch.Tensor]:
    """Return what the CPU makes of a call with its dtypes changed."""

    def move_to_cpu(value: Any) -> Any:
        if isinstance(value, KeptTensor):
            # Not Tensor.to: it would change the tensor's layout.
            return value.with_memory(lambda memory: memory.to(change(value.dtype))).tensor()
        if isinstance(value, torch.dtype):
            return change(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    call = call.with_changed(move_to_cpu)
    if "pin_memory" in call.kwargs:
        call = call._replace(kwargs={**call.kwargs, "pin_memory": False})
    return call.run(kernel_for(call.func))


# -- ties, bases of a space, floating numbers that no integer represents ----------------------------


def determined_results(func: Any, count: int) -> Sequence[int]:
    """Return the positions of the results that have one right answer, of the first so many."""
    positions = DETERMINED.get(func.overloadpacket)
    return range(count) if positions is None else [position for position in positions if position < count]


def same_choice(call: Float64Call, result: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether two whole-number results choose equal elements: the operator leaves open which of them it is.

    Args:
        call: its arguments on the CPU, the first of them in its own dtype.
        result: the indices of the device.
        exact: those of the CPU.
    """
    func, args = call.func, call.args
    if result.shape != exact.shape or result.dtype != torch.int64 or not args:
        return False
    source = args[0]
    dims = _POOLS.get(func.overloadpacket)
    if dims is not None:
        flat, shape = source.flatten(-dims), result.flatten(-dims)
        return _equal(flat, -1, shape, exact.flatten(-dims))
    if func.overloadpacket not in _CHOOSING or not source.dim():
        return False
    dim = call.arguments().get("dim")
    if dim is None:
        return _equal(source.flatten(), 0, result.flatten(), exact.flatten())
    if result.dim() < source.dim():
        result, exact = result.unsqueeze(dim), exact.unsqueeze(dim)
    if result.dim() != source.dim():
        return False
    # An element that is chosen twice has pushed another one out.
    if func.overloadpacket in {aten.sort, aten.argsort, aten.topk} and _repeats(result, dim):
        return False
    return _equal(source, dim, result, exact)


def outside(call: Float64Call, result: torch.Tensor) -> torch.Tensor | None:
    """Return where a floating number was converted to an integer that cannot represent it, undefined in C++."""
    func, args = call.func, call.args
    if func.overloadpacket not in {aten._to_copy, aten.copy_} or not args:
        return None
    source = args[0] if func.overloadpacket is aten._to_copy else args[1]
    if not isinstance(source, torch.Tensor) or not source.dtype.is_floating_point:
        return None
    if result.dtype.is_floating_point or result.dtype.is_complex or result.dtype == torch.bool:
        return None
    info = torch.iinfo(result.dtype)
    wide = source.double()
    bad = ~torch.isfinite(wide) | (wide >= float(info.max) + 1) | (wide <= float(info.min) - 1)
    return bad.expand(result.shape) if bad.any() else None


def _equal(source: torch.Tensor, dim: int, result: torch.Tensor, exact: torch.Tensor) -> bool:
    length = source.shape[dim]
    if result.numel() and (int(result.min()) < 0 or int(result.max()) >= length):
        return False
    tensor, expected = source.gather(dim, result), source.gather(dim, exact)
    both_nan = tensor.isnan() & expected.isnan()
    return bool(((tensor == expected) | both_nan).all())


def _repeats(indices: torch.Tensor, dim: int) -> bool:
    ordered = indices.sort(dim).values
    return bool((ordered.diff(dim=dim) == 0).any()) if ordered.shape[dim] > 1 else False
