"""Calls the kernels that draw random numbers: Distributions.mm, Dropout.mm, Randperm.mm.

Their source of randomness is Philox (c10/metal/random.h, which the wheel ships), computed here once
more, so that most results are known exactly.  What a sampler with rejection gives is judged by bounds
alone: with parameters so large that it cannot be ten standard deviations off.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.judging import EPS
from opcheck.kernels.launch import KernelCall, Launch, Launches, Result, family
from opcheck.kernels.values import random, widen

_WORD = (1 << 32) - 1
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
#: c10/metal/random.h runs a round less than its argument, 10.
_ROUNDS = 9
_SEED, _OFFSET = 1234, 77
#: The first thread draws the word 2, or the largest word as its second or its first, at these offsets: as a float32
#: 1 minus the smallest is 1, and the others are 1.
_OFFSETS = (_OFFSET, 76468891, 65309257, 123095792)
#: A random word becomes a float below 1.
_SCALE = 4.6566127342e-10
#: Results of a launch: more than a multiple of four.
_COUNT = 403
_EACH = 4


def _philox(seed: int, index: int) -> tuple[int, int, int, int]:
    """Return the four words of an index."""
    counter = (0, 0, index >> 32 & _WORD, index & _WORD)
    key = (seed >> 32 & _WORD, seed & _WORD)
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * counter[0], _MULTIPLIERS[1] * counter[2]
        counter = (second >> 32 ^ counter[1] ^ key[0], second & _WORD, first >> 32 ^ counter[3] ^ key[1], first & _WORD)
        key = (key[0] + _WEYL[0] & _WORD, key[1] + _WEYL[1] & _WORD)
    return counter


def _words(count: int, offset: int = _OFFSET) -> Tensor:
    """Return what the threads draw: (threads, 4), in int64."""
    return torch.tensor([_philox(_SEED, offset + thread) for thread in range(count)])


def _uniform(words: Tensor) -> Tensor:
    """Return floats of at least 0 and below 1."""
    return (words & 0x7FFFFFFF).to(torch.float32) * _SCALE


def _pairs(words: Tensor) -> Tensor:
    """Return normal numbers of pairs of words: the cosine and the sine of one angle each."""
    radius = _uniform(words[..., 0::2]).double().clamp(min=EPS)
    angle = _uniform(words[..., 1::2]).double() * 2 * math.pi
    length = (-2 * radius.log()).sqrt()
    return torch.stack([length * angle.cos(), length * angle.sin()], -1).flatten(-2)


def _bind(offset: int = _OFFSET, **more: Any) -> dict[str, Any]:
    return {"seed_base_offset": (_SEED, offset), "numel": _COUNT, **more}


_PARAMETERS = {
    "uniform_dist": (-2.0, 3.0), "normal": (0.5, 2.0), "log_normal": (0.5, 0.75), "exponential": (1.5, 0.0),
    "cauchy": (0.5, 2.0), "geometric": (math.log1p(-0.2), 0.0)
}  # fmt: skip


def _draw(operation: str, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return the samples of a distribution, and how far rounding inside of it moves them."""
    first, second = _PARAMETERS[operation]
    uniform = _uniform(words).double()
    if operation == "uniform_dist":
        value = first + (second - first) * uniform
        return value, torch.full_like(value, 8 * EPS)
    if operation in {"normal", "log_normal"}:
        value = first + second * _pairs(words)
        slack = 32 * EPS * (1 + value.abs())
        return (value.exp(), value.exp() * slack * 2) if operation == "log_normal" else (value, slack)
    if operation == "exponential":
        uniform = uniform.clamp(max=1 - EPS)
        value = -(1 - uniform).log() / first
        return value, value * 8 * EPS + EPS / (1 - uniform) / first
    if operation == "cauchy":
        tangent = (math.pi * (uniform.clamp(EPS, 1 - EPS) - 0.5)).tan()
        return first + second * tangent, 16 * EPS * second * (1 + tangent.square())
    value = (uniform.clamp(min=EPS).log() / torch.tensor(first).double()).ceil()
    return value, torch.zeros_like(value)


@family(
    r"(?P<op>uniform_dist|normal|log_normal|exponential|cauchy|geometric)"
    r"_(?P<a>float|half|bfloat|int|long|short|char|uchar)"
)
def _distributions(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with four samples a thread."""
    for offset in _OFFSETS:
        words = _words(-(-_COUNT // _EACH), offset)
        value, slack = (part.flatten()[:_COUNT] for part in _draw(call["op"], words))
        if call["op"] == "uniform_dist":
            # A value that rounds to the upper limit becomes the lower limit: the interval excludes the upper.
            low, high = _PARAMETERS["uniform_dist"]
            value = torch.where(value.to(dtype) == high, low, value)
        bound = _bind(offset, params=_PARAMETERS[call["op"]])
        expected: dict[str, Result] = {}
        derived: dict[str, Callable[[Mapping[str, Tensor]], Tensor]] = {}
        if call["op"] == "exponential":
            # A sample of 0 lets multinomial choose what has no probability (pytorch/pytorch#192577).
            expected["positive"] = (words[:, 0], torch.ones(_COUNT, dtype=torch.long), 0.0)
            derived["positive"] = lambda bound: bound["output"] > 0
        expected["output"] = (words[:, 0], value, slack)
        yield Launch(bound, len(words), expected, group=32, derived=derived)


@family(r"bernoulli_(?P<how>scalar|tensor)_{any}")
def _bernoulli(call: KernelCall, dtype: torch.dtype) -> Launches:
    for offset in _OFFSETS:
        words = _words(-(-_COUNT // _EACH), offset)
        # The first results are sure, which the largest word must not change.
        chances = torch.linspace(1, 0, _COUNT) if call["how"] == "tensor" else torch.tensor([0.3])
        if call["how"] == "tensor":
            chances[:4] = 1.0
        sure = chances.expand(_COUNT) == 1
        value = ((_uniform(words).flatten()[:_COUNT] < chances) | sure).double()
        bound = _bind(offset, params=(0.3, 0.0), probs=chances)
        value = value.to(torch.complex128) if dtype.is_complex else value
        yield Launch(bound, len(words), {"output": (words[:, 0], value)}, group=32)


@family(r"random_int_{word}")
def _random_integers(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a range that floats and small integers represent."""
    start, extent = (0, 2) if dtype == torch.bool else (3, 100)
    each = 2 if dtype.itemsize == torch.int64.itemsize else _EACH
    words = _words(-(-_COUNT // each))
    drawn = words.flatten().tolist()
    if each == 2:
        drawn = [high << 32 | low for high, low in zip(drawn[::2], drawn[1::2], strict=True)]
    value = torch.tensor([start + number % extent for number in drawn[:_COUNT]])
    yield Launch(_bind(params=(start, extent)), len(words), {"output": (words[:, 0], value)}, group=32)


@family(r"dropout_(?P<way>fwd|bwd)_{any}")
def _dropout(call: KernelCall, dtype: torch.dtype) -> Launches:
    words = _words(-(-_COUNT // _EACH))
    operand, kept, scale = random((_COUNT,), dtype, 1), 0.7, 1 / 0.7
    mask = _uniform(words).flatten()[:_COUNT] < torch.tensor(kept)
    value = widen(operand) * scale * mask
    bound = _bind(mask=mask.clone(), input=operand, grad_output=operand, params=(kept, scale), scale=scale)
    result, grid = ("output", len(words)) if call["way"] == "fwd" else ("grad_input", _COUNT)
    if call["way"] == "fwd":
        bound["mask"] = ~mask
    yield Launch(bound, grid, {result: (operand, value, value.abs() * 4 * EPS), "mask": (operand, mask)}, group=32)


#: What the samplers with rejection get, the mean of a result and its standard deviation.
_REJECTING: dict[str, tuple[dict[str, float], float, float]] = {
    "standard_gamma": ({"alpha_in": 400.0}, 400, 20), "poisson": ({"lambda_in": 900.0}, 900, 30),
    "standard_binomial": ({"count_in": 1600.0, "prob_in": 0.5}, 800, 20)
}  # fmt: skip


@family(r"(?P<op>standard_gamma|poisson|standard_binomial)_{float}")
def _rejecting(call: KernelCall, dtype: torch.dtype) -> Launches:
    operand, mean, deviation = _REJECTING[call["op"]]
    bound = _bind() | {name: torch.full((_COUNT,), value, dtype=dtype) for name, value in operand.items()}
    value = torch.full((_COUNT,), mean, dtype=torch.float64)
    yield Launch(bound, _COUNT, {"output": (value, value, 10 * deviation)}, group=32)


@family(r"(?P<op>standard_gamma|dirichlet)_grad_{float}")
def _gradient(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Compare with the CPU's own gradients, which use the same approximations in double."""
    alpha = torch.linspace(0.5, 20, 97).to(dtype)
    sample = (alpha.double() * torch.linspace(0.3, 2, 97).flip(0)).to(dtype)
    total = (alpha.double() + torch.linspace(1, 9, 97)).to(dtype)
    share = torch.linspace(0.1, 0.9, 97).flip(0).to(dtype)
    operands = (share, alpha, total) if call["op"] == "dirichlet" else (alpha, sample)
    value = getattr(torch.ops.aten, f"_{call['op']}_grad")(*(operand.double() for operand in operands))
    slack = value.abs() * (1e-3 + (64 if call["op"] == "dirichlet" else 4) * torch.finfo(dtype).eps)
    bound = {"self_data": alpha, "output_data": sample, "x_data": share, "alpha_data": alpha, "total_data": total}
    yield Launch(bound, 97, {"output": (alpha, value, slack)})


@family(r"standard_dirichlet_{float}")
def _dirichlet(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a threadgroup a row, whose samples are one fourth each within a few percent."""
    rows, count = 5, 4
    alpha = torch.full((rows, count), 10000.0, dtype=dtype)
    value = torch.full((rows, count), 1 / count, dtype=torch.float64)
    bound = _bind(alpha_in=alpha, num_alpha=count)
    yield Launch(bound, rows * 32, {"output": (alpha, value, 0.03)}, group=32)


def _shuffle(ids: list[int], words: Iterator[int]) -> list[int]:
    """Return a list after Fisher and Yates, from its end, each step with one random word."""
    for last in range(len(ids) - 1, 0, -1):
        other = next(words) % (last + 1)
        ids[last], ids[other] = ids[other], ids[last]
    return ids


def _stream(offset: int) -> Iterator[int]:
    """Yield the words of one index after another."""
    while True:
        yield from _philox(_SEED, offset)
        offset += 1


@family(r"randperm_small_{whole}")
def _small_permutation(_call: KernelCall) -> Launches:
    """Call with one threadgroup, whose first thread shuffles."""
    for count in (1, 7, 300):
        value = torch.tensor(_shuffle(list(range(count)), _stream(_OFFSET)))
        bound = {"seed_base_offset": (_SEED, _OFFSET), "n": count}
        yield Launch(bound, 256, {"output": (value, value)}, group=256)


@family(r"randperm_dedup_islands_{whole}")
def _islands(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with sorted keys: those that are equal have their places shuffled, by a thread each."""
    lengths = (1, 2, 1, 5, 3, 1)
    count = sum(lengths)
    keys = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    data, start = list(range(count)), 0
    for length in lengths:
        data[start : start + length] = _shuffle(data[start : start + length], _stream(_OFFSET + start))
        start += length
    value = torch.tensor(data)
    yield Launch({
        "data": torch.arange(count).to(dtype), "keys": keys.to(call.dtype("keys")),
        "seed_base_offset": (_SEED, _OFFSET), "n": count
    }, count, {"data": (keys, value)})  # fmt: skip
