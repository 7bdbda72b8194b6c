"""Decides which results of a kernel leave the band of the CPU: a first look at all, and float64 for what differs."""

from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from opcheck.kernels import judging, pointwise, reference, values
from opcheck.kernels.host.host_call import CallArguments, HostCall, UnboundError
from opcheck.kernels.host.iteration import spread
from opcheck.kernels.kernel_records import Sample
from opcheck.numerics.child.float64 import WIDE, Float64Call, widen_dtype
from opcheck.tracing.torch_private.trees import tensors

#: So many differing results of a call are computed in float64; of more, so many in even steps.
_CONFIRMED = 2048
#: Functions of the exact operands: the rounding of these is no excuse.  A weighted mean may cancel.
_UNMOVED = pointwise.UNMOVED - {"lerp", "lerp_alpha"}
_STEPS = frozenset(["ceil", "div_floor", "div_trunc", "floor", "fmod", "remainder", "round", "trunc"])
#: A result may be so many times as far off as the furthest off of the CPU's, and so many units in the last place.
_TIMES, _UNITS = 8.0, 4.0
_HARD_UNITS = 512.0
#: Operands that a call adds up, whose sum may cancel: another order moves it by so many roundings of their sizes.
_ADDED = {
    **dict.fromkeys(("sum", "mean", "nansum", "cumsum"), ("self",)), "scatter_add": ("self", "src"),
    "index_add": ("self", "source"), "index_put": ("self", "values"), "embedding_dense_backward": ("grad_output",),
}  # fmt: skip
_ORDER = 16.0
#: Operators that only MPS has, and what computes the same.
_REFERENCES: dict[str, Any] = {
    "_scaled_dot_product_attention_math_for_mps": torch.ops.aten._scaled_dot_product_attention_math.default
}
#: Calls with at most so many elements are computed again by the kernels of later releases.
_REPEATED = 1 << 16
#: So many of the wrong results are tried with the kernels of later releases.
_KEPT = 64


class WrongResults(NamedTuple):
    """The results of a call that leave the band."""

    #: how many of those that were looked at in float64, scaled to all that differ
    elements: int
    smallest: Sample
    worst: Sample
    #: how far the worst is off, relative to the right value
    error: float
    #: the operands of some of them, for kernels of other releases
    call: HostCall | None


def find_wrong(host: HostCall, bound: CallArguments) -> tuple[WrongResults | None, int]:
    """Return the results that are wrong, if any, and how many were compared.

    Args:
        host: the call, with the CPU's results.
        bound: the kernels' results.
    """
    compared, wrong = 0, None
    for place, (computed, right) in enumerate(zip(bound.results, host.outputs, strict=False)):
        if computed is None:
            continue
        compared += right.numel()
        if torch.equal(computed, right):
            continue
        units = reference.allowed_units(bound.functor, right.dtype)
        differing = _differing(computed, right, units)
        if not differing.numel() or wrong is not None:
            continue
        bound = bound.again() if bound.again else bound
        if bound.functor:
            wrong = _confirm_pointwise(host, bound, place, differing, units)
        else:
            wrong = _confirm_whole(host, bound, place, differing)
    return wrong, compared


def _differing(computed: Tensor, right: Tensor, units: float) -> Tensor:
    """Return the places, in the flat result, that differ by more than so many units in the last place."""
    bits = _BITS.get(right.dtype)
    if bits is not None and units < 1 << 12:
        # Neighbours of one sign are neighbours as integers: one look at those that are no such neighbours is enough.
        computed, right = computed.reshape(-1), right.reshape(-1)
        far = ((computed.view(bits) - right.view(bits)).abs_() > units).nonzero().flatten()
        return far[_far(computed[far], right[far], units)] if far.numel() else far
    return _far(computed, right, units)


_BITS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def _far(computed: Tensor, right: Tensor, units: float) -> Tensor:
    """Return the places that differ by so much, and are not both NaN or near zero."""
    if computed.is_complex() or right.is_complex():
        computed, right = (torch.view_as_real(computed.contiguous()), torch.view_as_real(right.contiguous()))
        size = right.abs().amax(-1, keepdim=True)
        off = ((computed - right).abs() <= units * torch.finfo(right.dtype).eps * size) | (computed == right)
        return (~(off | (computed.isnan() & right.isnan())).all(-1)).reshape(-1).nonzero().flatten()
    if not right.is_floating_point():
        return (computed != right).reshape(-1).nonzero().flatten()
    info = torch.finfo(right.dtype)
    close = (computed - right).abs() <= right.abs() * (units * info.eps) + info.smallest_normal
    close |= (computed == right) | (computed.isnan() & right.isnan())
    return (~close).reshape(-1).nonzero().flatten()


def _confirm(
    bound: CallArguments, place: int, chosen: Tensor, wanted: judging.Expected, cpu: Tensor, units: float
) -> tuple[Tensor, Tensor]:
    """Return some results, and which are wrong, as the CPU's are not, also with nothing fused or flushed."""

    def take() -> Tensor:
        computed = bound.results[place]
        assert computed is not None
        return computed.reshape(-1)[chosen]

    got = take()
    bad = judging.find_bad(wanted, got, units)[0]
    if bool(bad.any()):
        bad &= ~judging.find_bad(wanted, cpu, units)[0]
    if bool(bad.any()):
        bad &= bound.run_otherwise(lambda: judging.find_bad(wanted, take(), units)[0])
    return got, bad


def _confirm_pointwise(
    host: HostCall, bound: CallArguments, place: int, differing: Tensor, units: float
) -> WrongResults | None:
    """Compare results with float64 on their own operands: wrong however operations are fused or denormals flushed."""
    right = host.outputs[place]
    step = -(-len(differing) // _CONFIRMED)
    chosen = differing[::step]
    operands = tuple(spread(operand, right.shape)[chosen].clone() for operand in bound.operands)
    wanted = pointwise.expect(bound.functor, operands, bound.parameters, _UNMOVED)
    if wanted.slack is not None and units >= _HARD_UNITS:
        # Functions that no specification bounds, near their zeros.
        wanted = msgspec.structs.replace(wanted, slack=wanted.slack * _TIMES)
    if bound.functor in _STEPS:
        wanted = msgspec.structs.replace(wanted, slack=None)
    if wanted.value.is_complex() and not right.is_complex():
        return None
    if units:
        wanted = pointwise.with_plain(wanted, bound.functor, bound.parameters, right.dtype)
    cpu = right.reshape(-1)[chosen]
    got, bad = _confirm(bound, place, chosen, wanted, cpu, units)
    if not bool(bad.any()):
        return None
    smallest, worst = judging.samples(wanted, got, bad)
    kept = bad.nonzero().flatten()[:_KEPT]
    arguments = {
        name: spread(value, right.shape)[chosen][kept] if isinstance(value, Tensor) else value
        for name, value in host.arguments.items()
    }
    call, error = host._replace(arguments=arguments, outputs=(cpu[kept],)), judging.largest_error(wanted, got, bad)
    return WrongResults(int(bad.sum()) * step, smallest, worst, error, call)


def _confirm_whole(host: HostCall, bound: CallArguments, place: int, differing: Tensor) -> WrongResults | None:
    """Compare results with the call in float64: wrong by more than the CPU's, and than what rounding moves."""
    right, computed = host.outputs[place], bound.results[place]
    assert computed is not None
    exact = _evaluate(host, place, 0)
    if exact is None or exact.shape != right.shape:
        raise UnboundError("it differs from the CPU, and nothing computes it in float64")
    value = exact.reshape(-1)[differing]
    cpu, got = right.reshape(-1)[differing], computed.reshape(-1)[differing]
    allowed = torch.zeros(len(value), dtype=torch.float64)
    inexact = right.is_floating_point() or right.is_complex()
    if inexact:
        off = (right.to(exact.dtype) - exact).abs()
        typical = off[off.isfinite()]
        allowed += _TIMES * (float(typical.max()) if typical.numel() else 0.0)
        size = _sum_sizes(host, place)
        allowed += 0.0 if size is None else _ORDER * judging.EPS * size.reshape(-1)[differing]
    if not bool(judging.find_bad(judging.Expected((differing,), value, allowed), got, _UNITS)[0].any()):
        return None
    for draw in (1, 2) if inexact else ():
        moved = _evaluate(host, place, draw)
        if moved is not None:
            by = (moved - exact).abs().reshape(-1)[differing]
            allowed += 2 * by.nan_to_num(0.0, 0.0, 0.0)
    wanted = judging.Expected((differing,), value, allowed)
    got, bad = _confirm(bound, place, differing, wanted, cpu, _UNITS)
    if not bool(bad.any()):
        return None
    smallest, worst = (
        msgspec.structs.replace(each, inputs=_operands(host, right.shape, int(each.inputs[0])))
        for each in judging.samples(wanted, got, bad)
    )
    small = sum(tensor.numel() for tensor in tensors(tuple(host.arguments.values()))) <= _REPEATED
    error = judging.largest_error(wanted, got, bad)
    return WrongResults(int(bad.sum()), smallest, worst, error, host if small else None)


def _sum_sizes(host: HostCall, place: int) -> Tensor | None:
    """Return what the sizes of a call's operands add up to; None for a call that adds nothing up."""
    sizes = {name: host.arguments[name].abs() for name in _ADDED.get(host.name, ())}
    if not sizes:
        return None
    return _evaluate(host._replace(arguments={**host.arguments, **sizes}), place, 0)


def _evaluate(host: HostCall, place: int, draw: int) -> Tensor | None:
    """Return a result in float64; with a draw, of operands that are moved within their own rounding."""
    drawn = torch.Generator().manual_seed(values.SEED + draw)

    def widen(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype not in WIDE:
            return value.clone() if isinstance(value, Tensor) else widen_dtype(value)
        wide = value.to(WIDE[value.dtype])
        if draw:
            by = torch.finfo(value.dtype).eps * (1 if value.dtype == torch.float32 else 0.5)
            wide = wide * (1 + by * (2 * torch.rand(wide.shape, generator=drawn, dtype=torch.float64) - 1))
        return wide

    func = _REFERENCES.get(host.name, host.func)
    call = Float64Call(func, (), dict(host.arguments)).with_changed(widen)
    try:
        with torch.no_grad():
            results = call.for_wide_results(host.outputs[place]).run()
    except Exception:  # noqa: BLE001 - a kernel that has no float64, or none for this mixture
        return None
    return results[place] if place < len(results) else None


def _operands(host: HostCall, shape: torch.Size, place: int) -> tuple[str, ...]:
    """Describe what a result comes from: its place, and the range of each operand."""
    index = [int(each) for each in torch.unravel_index(torch.tensor(place), shape)] if shape else []
    ranges = (
        f"{name} {list(value.shape)} from {judging.text(value.min())} to {judging.text(value.max())}"
        for name, value in host.arguments.items()
        if isinstance(value, Tensor) and value.numel() and not value.is_complex()
    )
    return (f"result {index}", *ranges)
