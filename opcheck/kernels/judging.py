"""Compares a kernel's results with the reference: right, within what is allowed, or wrong."""

from typing import Any

import msgspec
import torch
from torch import Tensor

from opcheck.kernels.kernel_records import Sample
from opcheck.kernels.values import PARTS

#: What a float32 computation may be off in its argument, in units of float32's precision: the
#: reference moved so far bounds what rounding before the last step can do.
_MOVED = 4.0
EPS = 2.0**-23
_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8, torch.float8_e4m3fn: 4}
#: A relative error that is no matter of digits.
_GROSS = 1e-2
#: The search for the simplest wrong input ends after so many.
_TRIED = 4000


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Results compared with a reference."""

    compared: int
    wrong: int
    ulps: float
    smallest: Sample | None = None
    worst: Sample | None = None
    #: for each operand, the range of its values with wrong results
    ranges: tuple[str, ...] = ()
    #: the share that is wrong of random inputs of a usual size
    usual: float | None = None


class Expected(msgspec.Struct, frozen=True):
    """The reference of a set of inputs: in double or integers, and by how much it may be off.

    ``left_out`` is True where nothing is defined; ``flushed`` is the reference of the inputs without denormals.
    """

    inputs: tuple[Tensor, ...]
    value: Tensor
    slack: Tensor | None = None
    left_out: Tensor | None = None
    flushed: Tensor | None = None
    #: what plain arithmetic in the kernel's own precision gives: the CPU's, without vector extensions
    plain: Tensor | None = None


def slack(value: Tensor, moved: tuple[Tensor, ...]) -> Tensor:
    """Return by how much a reference moves with its arguments; NaN counts as 0."""
    largest = torch.zeros(value.shape, dtype=torch.float64)
    for neighbour in moved:
        largest = torch.maximum(largest, torch.nan_to_num((neighbour - value).abs(), 0.0, 0.0, 0.0))
    return largest


def nudge(operand: Tensor) -> tuple[Tensor, Tensor]:
    """Return an operand in double a little larger and a little smaller."""
    by = _MOVED * 2.0**-24
    return operand * (1 + by), operand * (1 - by)


def is_denormal(operand: Tensor) -> Tensor:
    """Return where a float32 or bfloat16 is smaller than every normal number, and not zero: a GPU flushes those."""
    if operand.dtype not in {torch.float32, torch.bfloat16}:  # a float16 keeps them
        return torch.zeros(operand.shape, dtype=torch.bool)
    return (operand != 0) & (operand.abs() < torch.finfo(operand.dtype).smallest_normal)


def judge(expected: Expected, got: Tensor, allowed: float) -> Judged:
    """Compare a kernel's results with their reference.

    Args:
        expected: the reference.
        got: the results, in the order of the inputs.
        allowed: the largest difference of a float, in units in the last place.
    """
    bad, ulps = find_bad(expected, got, allowed)
    wrong = int(bad.sum())
    worst = float(torch.where(bad, 0.0, ulps).max()) if got.numel() else 0.0
    return Judged(compared=got.numel(), wrong=wrong, ulps=worst, **_describe(expected, got, bad) if wrong else {})


def find_bad(expected: Expected, got: Tensor, allowed: float) -> tuple[Tensor, Tensor]:
    """Return which results are wrong, and how many units in the last place each differs; as ``judge``."""
    bad, ulps = _compare(expected, expected.value, got, allowed)
    for other in (expected.flushed, expected.plain):
        if other is not None:
            also, _ = _compare(expected, other, got, allowed)
            also |= other.isnan() & ~got.isnan()
            bad = bad & also
    if expected.left_out is not None:
        bad = bad & ~expected.left_out
        ulps = torch.where(expected.left_out, 0.0, ulps)
    return bad, ulps


def _compare(expected: Expected, value: Tensor, got: Tensor, allowed: float) -> tuple[Tensor, Tensor]:
    """Return which results are wrong, and how many units each differs."""
    if got.dtype.is_complex:
        return _complex(value, expected.slack, got, allowed)
    if got.dtype.is_floating_point:
        return _floats(value, expected.slack, got, allowed)
    bad = _wrap(value, got.dtype).long() != got.long()
    return bad, torch.zeros(got.shape, dtype=torch.float64)


def _wrap(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return integers as their type represents them; a float reference is whole where it is an integer."""
    if dtype == torch.bool:
        return value.to(torch.bool)
    if value.dtype.is_floating_point:
        value = torch.nan_to_num(value, 0.0)
    return value.to(torch.int64).to(dtype)


def _unit(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance between neighbours of a dtype at a value, in double."""
    info = torch.finfo(dtype)
    least = torch.frexp(torch.tensor(info.smallest_normal, dtype=torch.float64)).exponent
    exponent = torch.maximum(torch.frexp(value.abs()).exponent, least)
    return torch.ldexp(torch.ones_like(value), exponent - _DIGITS[dtype])


def _floats(value: Tensor, moves: Tensor | None, got: Tensor, allowed: float) -> tuple[Tensor, Tensor]:
    """Return which results are wrong, and how many units each differs."""
    info = torch.finfo(got.dtype)
    value = value.to(torch.float64)
    result = got.to(torch.float64)
    difference = (result - value).abs()
    unit = _unit(torch.nan_to_num(value, 0.0, info.max, -info.max), got.dtype)
    ulps = difference / unit
    slackened = torch.zeros_like(value) if moves is None else moves
    bound = max(allowed, 0.5) * unit + slackened + unit * 2.0**-20
    fine = difference <= bound
    fine |= value.isnan() & result.isnan()
    fine |= (value == result) & value.isinf()
    # Beyond the largest number of the dtype infinity is right, and near it the largest number.
    over = value.abs() + bound >= info.max
    fine |= over & result.isinf() & (result.sign() == value.sign())
    # Results below the smallest normal number may be flushed to zero; a function of bits has none of its own.
    if allowed:
        fine |= (value.abs() < info.smallest_normal) & (result.abs() <= info.smallest_normal)
    counted = torch.where(value.isfinite() & result.isfinite() & (value.abs() >= info.smallest_normal), ulps, 0.0)
    return ~fine, torch.nan_to_num(counted, 0.0, 0.0, 0.0)


def _complex(value: Tensor, moves: Tensor | None, got: Tensor, allowed: float) -> tuple[Tensor, Tensor]:
    """Judge complex results: each may be off by so much of its modulus, each part by as much as a float."""
    part = PARTS[got.dtype]
    value = value.to(torch.complex128)
    result = got.to(torch.complex128)
    info = torch.finfo(part)
    size = torch.nan_to_num(value.abs(), 0.0, info.max, info.max)
    unit = _unit(size, part)
    difference = (result - value).abs()
    bound = allowed * unit + (0.0 if moves is None else moves)
    both = torch.view_as_real(value)
    fine = difference <= bound
    # What overflows, or has a part that is not a number, is not judged.
    fine |= (both.abs().amax(-1) >= info.max / 8) | both.isnan().any(-1)
    fine |= (value.abs() < info.smallest_normal) & (result.abs() <= info.smallest_normal)
    return ~fine, torch.nan_to_num(torch.where(fine, difference / unit, 0.0), 0.0, 0.0, 0.0)


def _describe(expected: Expected, got: Tensor, bad: Tensor) -> dict[str, Any]:
    """Return the two samples, and the ranges of wrong inputs."""
    places = bad.nonzero().flatten()
    smallest, worst = samples(expected, got, bad)
    ranges = tuple(_range(operand[places]) for operand in expected.inputs)
    return {"smallest": smallest, "worst": worst, "ranges": ranges}


def largest_error(expected: Expected, got: Tensor, bad: Tensor) -> float:
    """Return the largest relative error of the wrong results; 1 where either number is not finite."""
    return float(_relative(expected.value[bad], got[bad]).max())


def samples(expected: Expected, got: Tensor, bad: Tensor) -> tuple[Sample, Sample]:
    """Return the wrong results of the simplest inputs, and those furthest off.

    The simplest are those of the results that are off by more than digits, if there are any.
    """
    places = bad.nonzero().flatten()
    off = _relative(expected.value[places], got[places])
    worst = int(places[off.argmax()])
    gross = off >= _GROSS
    if bool(gross.any()):
        places, off = places[gross], off[gross]

    def weight(at: int) -> tuple[float, float, int]:
        weights = [_weight(operand[at]) for operand in expected.inputs]
        return sum(digits for digits, _ in weights), sum(size for _, size in weights), at

    def sample(place: int) -> Sample:
        value = expected.value[place]
        return Sample(
            inputs=tuple(text(operand[place]) for operand in expected.inputs),
            result=text(got[place]),
            expected=text(value if got.dtype == torch.complex32 else value.to(got.dtype)),
            gross=bool(gross.any()),
        )

    distances = sum(_distance(operand[places]) for operand in expected.inputs)
    few = places[torch.as_tensor(distances).argsort(stable=True)[:_TRIED].sort().values]
    return sample(min(few.tolist(), key=weight)), sample(worst)


def _distance(operand: Tensor) -> Tensor:
    """Return by how many powers of two operands are larger or smaller than 1; none for 0."""
    wide = operand.to(torch.complex128 if operand.is_complex() else torch.float64).abs()
    return torch.where(wide == 0, 0.0, wide.clamp(1e-40, 1e40).log2().abs().nan_to_num(1000.0))


def _range(operand: Tensor) -> str:
    """Return the smallest and the largest of some inputs, without infinities unless there is nothing else."""
    if operand.is_complex():
        real, imaginary = torch.view_as_real(operand.to(torch.complex64)).unbind(-1)
        return f"{_range(real)}, {_range(imaginary)} i"
    numbers = operand.double()
    finite = numbers[numbers.isfinite()]
    numbers = finite if finite.numel() else numbers
    low, high = _float(float(numbers.min())), _float(float(numbers.max()))
    return low if low == high else f"{low} to {high}"


def _relative(value: Tensor, got: Tensor) -> Tensor:
    """Return the relative error of results; 1 where either is no finite number."""
    wide = torch.complex128 if got.is_complex() or value.is_complex() else torch.float64
    value, got = value.to(wide), got.to(wide)
    error = (got - value).abs() / value.abs()
    return torch.nan_to_num(error, 1.0, 1.0, 1.0)


def _weight(value: Tensor) -> tuple[float, float]:
    """Return how complicated inputs are: ordinary before special, few digits before many, small ones first."""
    number = value.item()
    parts = (number.real, number.imag) if isinstance(number, complex) else (number,)
    total = 0.0
    for part in parts:
        size = abs(float(part))
        if size != size or size == float("inf"):  # noqa: PLR0124
            total += 40
        elif size and not 1e-6 <= size <= 1e6:
            total += 30
        else:
            total += min(len(f"{size:.9g}".replace(".", "").strip("0")), 4)
    return total, sum(min(1e30, abs(float(part))) for part in parts)


def text(value: Tensor) -> str:
    """Return a number as it is written, with as many digits as its dtype has."""
    if value.dtype.is_complex:
        number = value.to(torch.complex128).item()
        return f"{_float(number.real)}{'-' if str(number.imag).startswith('-') else '+'}{_float(abs(number.imag))}j"
    if value.dtype.is_floating_point:
        return _float(value.double().item())
    return str(value.item())


def _float(number: float) -> str:
    return f"{number:.9g}"


def rounding(dtype: torch.dtype) -> float:
    """Return what rounding a value to the dtype may change, relative to it; float32's for integers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else EPS


def summed_slack(size: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what another order of summation may change, and the rounding of the result.

    Args:
        size: the same product of the absolute values.
        value: the product.
        dtype: of the result.
    """
    return size.double() * 16 * EPS + value.abs().double() * rounding(dtype)


def half_steps(dtype: torch.dtype) -> float:
    """Return what rounding each of a few steps to the dtype may change."""
    return 4 * torch.finfo(dtype).eps if dtype in {torch.float16, torch.bfloat16} else 0.0
