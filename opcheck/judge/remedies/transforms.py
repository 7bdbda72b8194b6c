"""Fourier transforms by real matrices, without a complex tensor or an FFT kernel.

They take n * n products where an FFT takes n log n.
"""

import math

import torch


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


def istft_conv(
    real: torch.Tensor, imaginary: torch.Tensor, window: torch.Tensor, hop: int
) -> torch.Tensor:
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
    envelope = torch.nn.functional.conv_transpose1d(
        ones, (window * window).view(1, 1, -1), stride=hop
    )
    middle = slice(n // 2, summed.shape[-1] - n // 2)
    return (summed[..., middle] / envelope[..., middle]).squeeze(1)
