"""For each remedy: random inputs, what the program did before, and what it does after."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from op_lists import replacements as cx

real, joined = torch.view_as_real, torch.view_as_complex


class Example(NamedTuple):
    """``made(a, b, c)`` gives CPU tensors for sizes; both functions take them."""

    made: Callable[[int, int, int], tuple[Tensor, ...]]
    before: Callable[..., Any]
    after: Callable[..., Any]


def _random(*shapes: Callable[[int, int, int], tuple[int, ...]]) -> Any:
    return lambda a, b, c: tuple(torch.randn(shape(a, b, c)) for shape in shapes)


def _parts(z: Tensor) -> tuple[Tensor, Tensor]:
    return z.real, z.imag


def _complex_norm(z: Tensor) -> Tensor:
    z = z - z.mean(-1, keepdim=True)
    return z * torch.rsqrt(z.abs().square().mean(-1, keepdim=True) + 1e-5)


def _rope(x: Tensor, angles: Tensor) -> Tensor:
    turned = torch.polar(torch.ones_like(angles), angles)
    return real(joined(x.unflatten(-1, (-1, 2)).contiguous()) * turned).flatten(-2)


def _well_conditioned(a: int, b: int, _c: int) -> tuple[Tensor, Tensor]:
    return torch.randn(a, b, b, 2) + 3 * b * torch.eye(b).unsqueeze(-1), torch.randn(a, b, 2, 2)


def _spectrum(a: int, b: int, c: int) -> tuple[Tensor, Tensor]:
    z = torch.fft.rfft(torch.randn(a, b * 7 + c))
    return z.real.contiguous(), z.imag.contiguous()


def _pairs(a: int, b: int, _c: int) -> tuple[Tensor, ...]:
    halves = []
    for _ in range(3):
        wide = torch.randn(a, b, dtype=torch.float64)
        halves += [wide.float(), (wide - wide.float().double()).float()]
    return tuple(halves)


def _pair_after(*x: Tensor) -> Tensor:
    high, low = cx.pair_add(cx.pair_mul((x[0], x[1]), (x[2], x[3])), (x[4], x[5]))
    return torch.stack((high, low))


def _doubles(*x: Tensor) -> Tensor:
    a, b, c = (x[i].double() + x[i + 1].double() for i in (0, 2, 4))
    return a * b + c


def _sigmas_before(n: Tensor) -> Tensor:
    ramp = torch.linspace(0, 1, len(n), dtype=torch.float64)
    return (15.0 ** (1 / 7) + ramp * (0.03 ** (1 / 7) - 15.0 ** (1 / 7))) ** 7


def _window(n: int) -> Tensor:
    return torch.hann_window(n)


def _stft(x: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
    return _parts(torch.stft(x, 16, 4, window=window, return_complex=True))


def _sound(a: int, b: int, _c: int) -> tuple[Tensor, Tensor]:
    return torch.randn(a, 32 + 4 * b), _window(16)


def _sound_spectrum(a: int, b: int, c: int) -> tuple[Tensor, ...]:
    sound, window = _sound(a, b, c)
    re, im = _stft(sound, window)
    return re.contiguous(), im.contiguous(), window


class _Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ((x * x).mean(-1) - x.mean(-1) ** 2).abs().sqrt()


def _in_float64(x: Tensor) -> Tensor:
    made: Tensor = _Net().double()(x.double())
    return made


TURN = 2 * math.pi
_MATRIX = _random(lambda a, b, c: (a, b, c, 2), lambda a, b, c: (a, c, b, 2))
_TWO = _random(lambda a, b, c: (a, b, c, 2), lambda a, b, c: (a, b, c, 2))
_ONE = _random(lambda a, b, c: (a, b, c, 2))
_PLAIN = _random(lambda a, b, c: (a, b * 9 + c))
_PAIR = _random(lambda a, b, c: (a, b, c), lambda a, b, c: (a, b, c))


EXAMPLES: dict[str, Example] = {
    "rotate_pairs": Example(
        _random(lambda a, b, c: (a, b, 2 * c), lambda _a, b, c: (b, c)),
        _rope,
        lambda x, angles: cx.rotate_pairs(x, angles.cos(), angles.sin()),
    ),
    "complex_mul": Example(_TWO, lambda a, b: real(joined(a) * joined(b)), cx.complex_mul),
    "complex_matmul": Example(_MATRIX, lambda a, b: real(joined(a) @ joined(b)), cx.complex_matmul),
    "complex_abs": Example(_ONE, lambda a: joined(a).abs(), cx.complex_abs),
    "complex_angle": Example(_ONE, lambda a: joined(a).angle(), cx.complex_angle),
    "complex_exp": Example(_ONE, lambda a: real(joined(a).exp()), cx.complex_exp),
    "complex_polar": Example(
        _PAIR, lambda r, w: real(torch.polar(r.abs(), w)), lambda r, w: cx.complex_polar(r.abs(), w)
    ),
    "complex_softmax": Example(
        _ONE, lambda a: real(torch.polar(joined(a).abs().softmax(-1), joined(a).angle())), cx.complex_softmax
    ),
    "complex_normalize": Example(_ONE, lambda a: real(_complex_norm(joined(a))), cx.complex_normalize),
    "complex_linear": Example(
        _random(lambda a, b, c: (a, b, c, 2), lambda _a, b, c: (b, c, 2), lambda _a, b, _c: (b, 2)),
        lambda x, w, b: real(nn.functional.linear(joined(x), joined(w), joined(b))),
        cx.complex_linear,
    ),
    "complex_solve": Example(
        _well_conditioned, lambda a, b: real(torch.linalg.solve(joined(a), joined(b))), cx.complex_solve
    ),
    "rdft": Example(_PLAIN, lambda x: _parts(torch.fft.rfft(x)), cx.rdft),
    "irdft": Example(
        _spectrum,
        lambda re, im: torch.fft.irfft(torch.complex(re, im), 2 * re.shape[-1] - 1),
        lambda re, im: cx.irdft(re, im, 2 * re.shape[-1] - 1),
    ),
    "dft": Example(_PAIR, lambda re, im: _parts(torch.fft.fft(torch.complex(re, im))), cx.dft),
    "idft": Example(_PAIR, lambda re, im: _parts(torch.fft.ifft(torch.complex(re, im))), cx.idft),
    "dft2": Example(_PAIR, lambda re, im: _parts(torch.fft.fft2(torch.complex(re, im))), cx.dft2),
    "fourier_mixing": Example(
        _random(lambda a, b, c: (a, b, c)), lambda x: torch.fft.fftn(x, dim=(-2, -1)).real, cx.fourier_mixing
    ),
    "stft_conv": Example(_sound, _stft, lambda x, w: cx.stft_conv(x, w, 4)),
    "istft_conv": Example(
        _sound_spectrum,
        lambda re, im, w: torch.istft(torch.complex(re, im), 16, 4, window=w),
        lambda re, im, w: cx.istft_conv(re, im, w, 4),
    ),
    "variance": Example(
        lambda a, b, c: (torch.randn(a, 50 * b) + 200.0 * c,),
        lambda x: x.double().var(-1, unbiased=False),
        cx.two_pass_variance,
    ),
    "sum": Example(lambda a, b, c: (torch.rand(a, 999 * b + c),), lambda x: x.double().sum(-1), cx.compensated_sum),
    "mean": Example(lambda a, b, c: (torch.rand(a, 999 * b + c),), lambda x: x.double().mean(-1), cx.compensated_mean),
    "cumsum": Example(
        lambda a, b, c: (torch.rand(a, 999 * b + c),), lambda x: x.double().cumsum(-1), cx.compensated_cumsum
    ),
    "wrapped_phase": Example(
        lambda a, b, c: (torch.rand(a, 999 * b + c) * 0.05,),
        lambda f: torch.sin(TURN * f.double().cumsum(-1)),
        lambda f: torch.sin(TURN * cx.wrapped_phase(f)),
    ),
    "large_angle": Example(
        lambda a, b, c: (torch.rand(a, b * 9) * 1000 * c, torch.rand(a, b * 9) * 1000),
        lambda t, f: torch.sin(TURN * (t.double() * f.double() % 1)),
        lambda t, f: torch.sin(TURN * cx.phase_of_product(t, f)),
    ),
    "two_floats": Example(_pairs, _doubles, _pair_after),
    "scheduler_sigmas": Example(_PLAIN, lambda x: _sigmas_before(x[0]), lambda x: cx.sigmas(x.shape[-1], x.device)),
    "keep_on_cpu": Example(lambda a, b, c: (torch.randn(a, 20 * b) + c,), _in_float64, cx.KeepOnCpu(_Net())),
}


class Pattern(NamedTuple):
    """A line of code alone: the names that it uses, and the one that it makes."""

    names: Callable[[int, int], dict[str, Any]]
    made: str


def _array(dtype: str) -> Callable[[int, int], dict[str, Any]]:
    def names(a: int, b: int) -> dict[str, Any]:
        numbers = np.random.default_rng(a * 31 + b).random((a, b)) * 100
        return {"array": numbers.astype(dtype)}

    return names


def _eight_bits(a: int, b: int) -> dict[str, Any]:
    return {"stored": torch.randn(a, b).to(torch.float8_e4m3fn), "scale": torch.tensor(0.5)}


PATTERNS: dict[str, Pattern] = {
    "cast_numpy": Pattern(_array("float64"), "x"),
    "cast_numpy_scalar": Pattern(lambda a, b: {"scalar": np.float64(a / b)}, "x"),
    "default_dtype": Pattern(lambda a, b: {"n": a * b}, "x"),
    "dtype_given": Pattern(lambda _a, _b: {"device": torch.device("cpu")}, "x"),
    "complex128_to_complex64": Pattern(_array("complex128"), "z"),
    "complex32_to_complex64": Pattern(lambda a, b: {"spectrum": torch.randn(a, b) + 1j}, "z"),
    "uint16_to_int32": Pattern(_array("uint16"), "x"),
    "uint32_to_int64": Pattern(_array("uint32"), "x"),
    "uint64_to_int64": Pattern(_array("uint64"), "x"),
    "float8_to_float16": Pattern(_eight_bits, "w"),
    "int64_sum_on_cpu": Pattern(lambda a, b: {"x": torch.arange(a * b) << 33}, "total"),
}
