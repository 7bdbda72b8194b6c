"""The functions that a remedy's ``after`` calls, as a user would paste them; opcheck reads them and never runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def complex_mul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a * b``."""
    (a_re, a_im), (b_re, b_im) = a.unbind(-1), b.unbind(-1)
    return torch.stack((a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re), -1)


def complex_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b``: four real products."""
    (a_re, a_im), (b_re, b_im) = a.unbind(-1), b.unbind(-1)
    return torch.stack((a_re @ b_re - a_im @ b_im, a_re @ b_im + a_im @ b_re), -1)


def complex_abs(a: torch.Tensor) -> torch.Tensor:
    """``a.abs()``; its gradient at zero is zero, as that of torch.abs."""
    squares = (a * a).sum(-1)
    positive = squares > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, squares, 1.0)), 0.0)


def complex_angle(a: torch.Tensor) -> torch.Tensor:
    """``a.angle()``."""
    return torch.atan2(a[..., 1], a[..., 0])


def complex_exp(a: torch.Tensor) -> torch.Tensor:
    """``a.exp()``."""
    size = torch.exp(a[..., 0])
    return torch.stack((size * torch.cos(a[..., 1]), size * torch.sin(a[..., 1])), -1)


def complex_polar(size: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """``torch.polar(size, angle)``."""
    return torch.stack((size * torch.cos(angle), size * torch.sin(angle)), -1)


def complex_softmax(a: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The softmax of the absolute values along a dimension of the complex tensor, each with its own phase."""
    size = torch.sqrt((a * a).sum(-1)).clamp_min(1e-12)
    return a * (torch.softmax(size, dim if dim >= 0 else dim + size.dim()) / size).unsqueeze(-1)


def complex_normalize(a: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """The last complex dimension with mean zero and mean square one, as a complex layer norm."""
    centred = a - a.mean(-2, keepdim=True)
    power = (centred * centred).sum(-1, keepdim=True).mean(-2, keepdim=True)
    return centred * torch.rsqrt(power + eps)


def complex_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """``torch.nn.functional.linear`` for complex x and weight, as real products."""
    real, imaginary = weight.unbind(-1)
    x_re, x_im = x.unbind(-1)
    linear = torch.nn.functional.linear
    made = torch.stack((linear(x_re, real) - linear(x_im, imaginary), linear(x_re, imaginary) + linear(x_im, real)), -1)
    return made if bias is None else made + bias


def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding in Llama's first form, without complex numbers.

    For ``view_as_real(view_as_complex(x.unflatten(-1, (-1, 2))) * freqs_cis).flatten(-2)``, where freqs_cis is
    ``torch.polar(ones, angles)``; here ``cos = angles.cos()`` and ``sin = angles.sin()``.
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def complex_solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``torch.linalg.solve(a, b)`` for complex matrices, as a real one of twice the size."""
    (a_re, a_im), (b_re, b_im) = a.unbind(-1), b.unbind(-1)
    top, bottom = torch.cat((a_re, -a_im), -1), torch.cat((a_im, a_re), -1)
    solved = torch.linalg.solve(torch.cat((top, bottom), -2), torch.cat((b_re, b_im), -2))
    return torch.stack(solved.chunk(2, -2), -1)


# -- Keeping a part on the CPU, and casting where a dtype begins --


class KeepOnCpu(nn.Module):
    """Runs a module on the CPU, in a dtype of its own, whatever the rest of the model does.

    ``model.to("mps")`` leaves it there: ``model.norm = KeepOnCpu(model.norm)``.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.module = module.to("cpu", dtype)
        self.dtype = dtype

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> KeepOnCpu:  # noqa: ARG002, FBT001, FBT002
        """Stay where it is when the model is moved or cast (torch/nn/modules/module.py)."""
        return self

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """Move in, compute, move out."""
        like = next(value for value in args if value.is_floating_point())
        there = [value.cpu().to(self.dtype) if value.is_floating_point() else value.cpu() for value in args]
        made: torch.Tensor = self.module(*there)
        return made.to(like.dtype).to(like.device)


def sigmas(n: int, device: torch.device, low: float = 0.03, high: float = 15.0) -> torch.Tensor:
    """A schedule computed in float64 on the CPU, and cast before it is moved."""
    ramp = torch.linspace(0, 1, n, dtype=torch.float64, device="cpu")
    schedule = (high ** (1 / 7) + ramp * (low ** (1 / 7) - high ** (1 / 7))) ** 7
    return schedule.to(torch.float32).to(device)


# -- Sums that keep digits in float32 where float64 was used to --


def compensated_sum(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The sum along a dimension, by halves, with the rounding error of every addition kept in a second tensor."""
    total = x.movedim(dim, -1)
    lost = torch.zeros_like(total)
    while total.shape[-1] > 1:
        if total.shape[-1] % 2:
            total = torch.nn.functional.pad(total, (0, 1))
            lost = torch.nn.functional.pad(lost, (0, 1))
        half = total.shape[-1] // 2
        a, b = total[..., :half], total[..., half:]
        total = a + b
        part = total - a
        lost = lost[..., :half] + lost[..., half:] + ((a - (total - part)) + (b - part))
    return (total + lost).sum(-1)


def compensated_mean(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The mean along a dimension, from the compensated sum."""
    return compensated_sum(x, dim) / x.shape[dim]


def compensated_cumsum(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The running sum along a dimension, in log2(n) steps, with the rounding errors kept in a second tensor."""
    total = x.movedim(dim, -1)
    lost = torch.zeros_like(total)
    step = 1
    while step < total.shape[-1]:
        a = total
        b = torch.nn.functional.pad(total, (step, 0))[..., : total.shape[-1]]
        before = torch.nn.functional.pad(lost, (step, 0))[..., : total.shape[-1]]
        total = a + b
        part = total - a
        lost = lost + before + ((a - (total - part)) + (b - part))
        step *= 2
    return (total + lost).movedim(-1, dim)


def two_pass_variance(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The variance (divided by n) of the differences from the mean: no two large numbers are subtracted."""
    centred = x - x.mean(dim, keepdim=True)
    # The mean is rounded: what is left of it is taken out, too.
    rest = centred.mean(dim, keepdim=True)
    return (centred * centred).mean(dim) - (rest * rest).squeeze(dim)


def wrapped_phase(increments: torch.Tensor, dim: int = -1, block: int = 64) -> torch.Tensor:
    """The running sum of phase increments in turns, without whole turns, for ``sin(2 * pi * phase)``.

    A sine needs the phase within one turn only: whole turns are dropped in each block before they cost digits.
    """
    x = increments.movedim(dim, -1)
    length = x.shape[-1]
    x = torch.nn.functional.pad(x, (0, -length % block)).unflatten(-1, (-1, block))
    inner = torch.cumsum(x, -1)
    ends = inner[..., -1] - torch.floor(inner[..., -1])
    step = 1
    while step < ends.shape[-1]:
        ends = ends + torch.nn.functional.pad(ends, (step, 0))[..., : ends.shape[-1]]
        ends = ends - torch.floor(ends)
        step *= 2
    before = torch.nn.functional.pad(ends, (1, 0))[..., :-1]
    phase = (inner + before.unsqueeze(-1)).flatten(-2)[..., :length]
    return (phase - torch.floor(phase)).movedim(-1, dim)


# -- Fourier transforms by real matrices, without a complex tensor or an FFT kernel --
#
# They take n * n products where an FFT takes n log n.


def dft_matrices(n: int, device: torch.device | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of a transform of length n: make them once, and keep them as buffers."""
    # Whole numbers: the angle stays within one turn, and exact.
    turns = (torch.arange(n).view(-1, 1) * torch.arange(n)) % n
    angles = turns.to(torch.float32) * (2 * math.pi / n)
    return angles.cos().to(device), angles.sin().to(device)


def dft(real: torch.Tensor, imaginary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.fft.fft(real + 1j * imaginary)`` along the last dimension, as its two parts."""
    cos, sin = dft_matrices(real.shape[-1], real.device)
    return real @ cos + imaginary @ sin, imaginary @ cos - real @ sin


def idft(real: torch.Tensor, imaginary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.fft.ifft`` along the last dimension, as its two parts."""
    n = real.shape[-1]
    cos, sin = dft_matrices(n, real.device)
    return (real @ cos - imaginary @ sin) / n, (imaginary @ cos + real @ sin) / n


def dft2(real: torch.Tensor, imaginary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.fft.fft2`` over the last two dimensions, as its two parts."""
    real, imaginary = dft(real, imaginary)
    real, imaginary = dft(real.transpose(-1, -2), imaginary.transpose(-1, -2))
    return real.transpose(-1, -2), imaginary.transpose(-1, -2)


def fourier_mixing(x: torch.Tensor) -> torch.Tensor:
    """``torch.fft.fftn(x, dim=(-2, -1)).real``, the mixing of FNet."""
    cos_n, sin_n = dft_matrices(x.shape[-1], x.device)
    cos_m, sin_m = dft_matrices(x.shape[-2], x.device)
    return cos_m @ (x @ cos_n) - sin_m @ (x @ sin_n)


def rdft(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.fft.rfft(x)`` along the last dimension, as its two parts."""
    n = x.shape[-1]
    cos, sin = dft_matrices(n, x.device)
    kept = n // 2 + 1
    return x @ cos[:, :kept], -(x @ sin[:, :kept])


def irdft(real: torch.Tensor, imaginary: torch.Tensor, n: int) -> torch.Tensor:
    """``torch.fft.irfft(real + 1j * imaginary, n)`` along the last dimension."""
    kept = n // 2 + 1
    cos, sin = dft_matrices(n, real.device)
    # All but the first, and for an even n the last, represent their mirror images, too.
    weights = torch.full((kept,), 2.0)
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0
    weights = weights.to(real.device)
    real, imaginary = real[..., :kept] * weights, imaginary[..., :kept] * weights
    return (real @ cos[:kept] - imaginary @ sin[:kept]) / n


def stft_conv(x: torch.Tensor, window: torch.Tensor, hop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """``torch.stft(x, n, hop, window=window, return_complex=True)`` of [batch, time], as its two parts.

    ``n`` is the length of the window; centred and padded by reflection, as by default.
    """
    n = window.shape[-1]
    kept = n // 2 + 1
    cos, sin = dft_matrices(n, x.device)
    kernels = torch.cat((cos[:kept] * window, -(sin[:kept] * window))).unsqueeze(1)
    padded = torch.nn.functional.pad(x.unsqueeze(1), (n // 2, n // 2), mode="reflect")
    made = torch.nn.functional.conv1d(padded, kernels, stride=hop)
    return made[:, :kept], made[:, kept:]


def istft_conv(real: torch.Tensor, imaginary: torch.Tensor, window: torch.Tensor, hop: int) -> torch.Tensor:
    """``torch.istft(real + 1j * imaginary, n, hop, window=window)`` of [batch, bins, frames]."""
    n = window.shape[-1]
    kept = n // 2 + 1
    cos, sin = dft_matrices(n, real.device)
    weights = torch.full((kept, 1), 2.0)
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0
    weights = weights.to(real.device) / n
    kernels = torch.cat((cos[:kept] * weights * window, -(sin[:kept] * weights * window)))
    frames = torch.cat((real, imaginary), 1)
    summed = torch.nn.functional.conv_transpose1d(frames, kernels.unsqueeze(1), stride=hop)
    ones = torch.ones_like(real[:, :1])
    envelope = torch.nn.functional.conv_transpose1d(ones, (window * window).view(1, 1, -1), stride=hop)
    middle = slice(n // 2, summed.shape[-1] - n // 2)
    return (summed[..., middle] / envelope[..., middle]).squeeze(1)


# -- Numbers of two float32: 48 bits of digits where float64 has 53, and float32's range --


def two_sum(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rounded sum, and exactly what the rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rounded product, and exactly what the rounding lost (for factors below 1e34)."""
    product = a * b
    # Each factor in two halves of 12 bits, whose products are exact.
    scaled_a, scaled_b = a * 4097.0, b * 4097.0
    a_high, b_high = scaled_a - (scaled_a - a), scaled_b - (scaled_b - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def pair_add(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of two such numbers."""
    high, low = two_sum(a[0], b[0])
    return two_sum(high, low + a[1] + b[1])


def pair_mul(
    a: tuple[torch.Tensor, torch.Tensor], b: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Their product."""
    high, low = two_product(a[0], b[0])
    return two_sum(high, low + a[0] * b[1] + a[1] * b[0])


def phase_of_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a * b`` without its whole turns: for ``sin(2 * pi * a * b)`` where the product is large."""
    high, low = two_product(a, b)
    return (high - torch.floor(high)) + low
