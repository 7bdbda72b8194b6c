"""The values that kernels are tried with: where arithmetic is delicate, and random ones."""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

#: The value in a result's memory before the kernel runs.
UNTOUCHED = 77
#: Of the random values; a run is the same wherever it is done.
SEED = 20240
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_HALVES = (torch.float16, torch.bfloat16)
#: The dtypes of the parts of complex numbers.
PARTS = {torch.complex64: torch.float32, torch.complex32: torch.float16}
_FLOAT8 = torch.float8_e4m3fn
_RANDOM = 400
_USUAL = 4095


def generator(salt: int) -> torch.Generator:
    """Return a generator that is the same every time; each use has its own salt."""
    return torch.Generator().manual_seed(SEED + salt)


@functools.cache
def single(dtype: torch.dtype) -> Tensor:
    """Return the values for functions of one argument."""
    if dtype in PARTS:
        return _complex(dtype, _VALUES_OF_PARTS)
    if dtype == _FLOAT8:
        return _float8()
    if dtype in _HALVES:
        return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    if dtype not in FLOATS:
        # PyTorch's CPU has few functions of uint16, uint32 and uint64.
        wide = torch.cat([_integers(dtype).long(), _random_integers(dtype, 0).long()])
        distinct: Tensor = torch.unique(wide)
        return distinct.to(dtype)
    info = torch.finfo(dtype)
    exponents = range(math.frexp(info.smallest_normal)[1], math.frexp(info.max)[1])
    powers = torch.tensor([math.ldexp(1.0, e) for e in exponents], dtype=torch.float64)
    seeded = generator(1)
    drawn = [
        torch.randn(_RANDOM, generator=seeded, dtype=torch.float64) * scale for scale in (1e-4, 1e-2, 1.0, 10.0, 100.0)
    ]
    steps = torch.arange(-20, 20.01, 0.25, dtype=torch.float64), torch.linspace(-1, 1, 101, dtype=torch.float64)
    candidates = torch.cat([_special(dtype).double(), *steps, powers, -powers, *drawn])
    return _distinct(candidates.to(dtype))


def _float8() -> Tensor:
    """Return every float of eight bits."""
    return torch.arange(256, dtype=torch.uint8).view(_FLOAT8)


def _distinct(values: Tensor) -> Tensor:
    """Return each value once, zeros of both signs among them."""
    places: dict[tuple[float, float] | None, int] = {}
    for place, value in enumerate(values.tolist()):
        key = (value, math.copysign(1.0, value)) if value == value else None  # noqa: PLR0124
        places.setdefault(key, place)
    return values[list(places.values())]


@functools.cache
def _special(dtype: torch.dtype) -> Tensor:
    """Return the delicate values of floating point, without duplicates."""
    info = torch.finfo(dtype)
    eps = info.eps
    numbers = [0.0, 1.0, 0.5, 2.0, 1.5, 2.5, 3.0, 7.0, 0.1, 0.3, 10.0, 33.0, 100.0, 1.0 + eps]
    numbers += [1.0 - eps / 2, eps, math.pi, math.pi / 2, 1e-3, 1.3667163e-5, 1e-4, 63.0, 4.25]
    numbers += [info.max, info.smallest_normal, info.smallest_normal / 4, 16777217.0, 1e10, 1e20]
    numbers += [1e-20, 12.0, 88.0, 256.0, math.inf, 3.5, 300.0, 2049.0, 1e9]
    numbers += [info.smallest_normal * eps, info.smallest_normal * 0.75]
    both = torch.tensor([v * s for v in numbers for s in (1, -1)] + [math.nan], dtype=torch.float64)
    return _distinct(both.to(dtype))


#: Parts of the complex values: finite, because what infinities do is not agreed on.
_VALUES_OF_PARTS = (0.0, 1.0, 0.5, 2.0, 0.1, 3.0, 10.0, 100.0, 1e-3, 1e-20, 1e20, 256.0, 300.0, 1000.0, 30000.0)
_FEW_PARTS = (0.0, 1.0, 0.5, 2.0, 300.0, 1e-20, 1e20)


def _complex(dtype: torch.dtype, parts: tuple[float, ...]) -> Tensor:
    real = PARTS[dtype]
    signed = [p * s for p in parts for s in (1.0, -1.0) if p <= torch.finfo(real).max]
    if real == torch.float16:
        signed = [p for p in signed if p == 0 or abs(p) >= torch.finfo(real).smallest_normal]
    pairs = torch.tensor([(a, b) for a in signed for b in signed], dtype=torch.float64)
    drawn = torch.randn(_RANDOM // 4, 2, generator=generator(2), dtype=torch.float64) * 3
    return torch.view_as_complex(torch.cat([pairs, drawn]).to(real))


@functools.cache
def _integers(dtype: torch.dtype) -> Tensor:
    """Return the limits of an integer type, and integers that floats cannot represent."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    info = torch.iinfo(dtype)
    largest = min(info.max, 2**63 - 1)  # the references are computed in int64
    if info.bits == 8:
        few = [0, 1, 2, 3, 5, 7, 10, 64, 100, 127, info.max, info.max - 1]
    else:
        few = [0, 1, 2, 3, 5, 7, 10, 31, 32, 33, 100, 255, 1000, largest, largest - 1]
        few += [16777217, 2**31 - 1, 2**31, 2**33, 2**53 + 1]
    signed = [v * s for v in few for s in (1, -1)] + [info.min, info.min + 1]
    return torch.tensor(sorted({v for v in signed if info.min <= v <= largest})).to(dtype)


def _random_integers(dtype: torch.dtype, salt: int) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    info = torch.iinfo(dtype)
    if info.bits == 8:
        return torch.arange(info.min, info.max + 1, dtype=torch.int64).to(dtype)
    wide = torch.randint(-(2**62), 2**62, (_RANDOM,), generator=generator(3 + salt))
    narrow = torch.randint(-1000, 1000, (_RANDOM,), generator=generator(30 + salt))
    unsigned = info.min == 0
    if unsigned:
        wide, narrow = wide.abs() % min(info.max, 2**62), narrow.abs()
    else:
        wide = wide % 2**61
    return torch.cat([wide, narrow]).to(dtype)


@functools.cache
def few(dtype: torch.dtype) -> Tensor:
    """Return the values whose pairs are tried."""
    if dtype in PARTS:
        return _complex(dtype, _FEW_PARTS)[: 4 * len(_FEW_PARTS) ** 2]
    if dtype == _FLOAT8:
        return _float8()[[*range(0, 256, 5), 0x80, 0x7E, 0xFE]]  # -0 and the largest of both signs
    return _special(dtype) if dtype in FLOATS else _integers(dtype)


@functools.cache
def usual(dtype: torch.dtype, salt: int) -> Tensor:
    """Return random values of a usual size, from 1e-3 to 1e3 with both signs; a quarter of complex ones is real.

    Of integers they are -1000 to 1000, or what the type has of that.
    """
    seeded = generator(salt)
    if dtype in PARTS or dtype in FLOATS:
        sizes = torch.rand(_USUAL, 2, generator=seeded, dtype=torch.float64) * 6 - 3
        signs = torch.randint(0, 2, (_USUAL, 2), generator=seeded) * 2 - 1
        parts = 10**sizes * signs
        if dtype in FLOATS:
            return parts[:, 0].to(dtype)
        parts[::4, 1] = 0
        return torch.view_as_complex(parts.to(PARTS[dtype]))
    if dtype in {torch.bool, _FLOAT8}:
        return draw(dtype, salt)
    info = torch.iinfo(dtype)
    low, high = max(info.min, -1000), min(info.max, 1000)
    return torch.randint(low, high + 1, (_USUAL,), generator=seeded).to(dtype)


@functools.cache
def draw(dtype: torch.dtype, salt: int) -> Tensor:
    """Return random values, `2 * _RANDOM` of them, for functions of several arguments."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (2 * _RANDOM,), generator=generator(salt)).bool()
    if dtype in PARTS:
        parts = torch.randn(2 * _RANDOM, 2, generator=generator(salt), dtype=torch.float64) * 3
        return torch.view_as_complex(parts.to(PARTS[dtype]))
    if dtype in FLOATS:
        scale = torch.tensor([0.01, 1.0, 5.0, 50.0], dtype=torch.float64).repeat(_RANDOM // 2)
        return (torch.randn(2 * _RANDOM, generator=generator(salt), dtype=torch.float64) * scale).to(dtype)
    if dtype == _FLOAT8:
        return _float8()[torch.randint(0, 256, (2 * _RANDOM,), generator=generator(salt))]
    numbers = _random_integers(dtype, salt).long()
    places = torch.randint(0, len(numbers), (2 * _RANDOM,), generator=generator(salt))
    return numbers[places].to(dtype)


def random(shape: Sequence[int], dtype: torch.dtype, salt: int = 0) -> Tensor:
    """Return moderate random values, so that a reduction of them does not overflow.

    Among those of float32 and its halves are ties, zeros of both signs and denormal numbers.
    """
    seeded = generator(salt)
    if dtype.is_complex:
        drawn = torch.randn(*shape, 2, generator=seeded, dtype=torch.float64)
        return torch.view_as_complex(drawn.to(PARTS[dtype]))
    if dtype.is_floating_point:
        drawn = torch.randn(*shape, generator=seeded, dtype=torch.float64)
        if dtype in FLOATS:
            flat = drawn.view(-1)
            flat[3::5] = (flat[3::5] * 4).round() / 4
            flat[7::13] = flat[7::13].sign() * torch.finfo(dtype).smallest_normal * 0.75
        return drawn.to(dtype)
    if dtype == torch.bool:
        return torch.rand(*shape, generator=seeded) < 0.5
    low = 0 if torch.iinfo(dtype).min == 0 else -9
    return torch.randint(low, 10, tuple(shape), generator=seeded).to(dtype)


def widen(tensor: Tensor) -> Tensor:
    """Return a tensor in double, complex double or int64."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def fill_untouched(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return memory for a result, filled with a value that marks untouched elements."""
    return torch.full(tuple(shape), 1 if dtype == torch.bool else UNTOUCHED, dtype=dtype)


def pad_words(tensor: Tensor) -> Tensor:
    """Return a flat copy with eight zeros behind it, as an allocator pads: atomics of small dtypes take whole words."""
    return torch.cat([tensor.flatten(), torch.zeros(8, dtype=tensor.dtype)])
