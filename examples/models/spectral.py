"""Models with complex numbers, Fourier transforms and float64: the harder part of a port to MPS.

Factories as in zoo.py; each is its architecture as it was published, small, with random weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

Made = tuple[Any, Any]


class ComplexAttention(nn.Module):
    """One head of attention over complex features (Eilers and Jiang 2023): scores by the real part."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(size, size, dtype=torch.complex64) for _ in range(4))
        self.size = size

    def forward(self, z: Tensor) -> Tensor:
        """(batch, tokens, size), complex."""
        scores = self.query(z) @ self.key(z).conj().transpose(-2, -1)
        weights = (scores.real / math.sqrt(self.size)).softmax(-1)
        return z + self.out(weights.to(z.dtype) @ self.value(z))


class ComplexTransformer(nn.Module):
    """Two layers of complex attention with modReLU between, on the analytic form of a real signal."""

    def __init__(self, size: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ComplexAttention(size) for _ in range(layers))
        self.bias = nn.Parameter(torch.zeros(size))
        self.head = nn.Linear(size, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, size), real."""
        z = torch.fft.fft(x, dim=-1)
        for layer in self.layers:
            z = layer(z)
            magnitude = z.abs()
            z = torch.relu(magnitude + self.bias) * z / (magnitude + 1e-6)
        return self.head(z.abs().mean(1))


def complex_transformer() -> Made:
    """A complex-valued transformer."""
    return ComplexTransformer(), torch.randn(2, 16, 32)


class Separator(nn.Module):
    """A mask over the spectrogram, estimated by an LSTM (as in Open-Unmix), put back by the inverse."""

    window: Tensor

    def __init__(self, bins: int = 129) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.lstm = nn.LSTM(bins, 64, batch_first=True, bidirectional=True)
        self.mask = nn.Linear(128, bins)

    def forward(self, sound: Tensor) -> Tensor:
        """(batch, samples)."""
        spectrum = torch.stft(sound, 256, 64, window=self.window, return_complex=True)
        hidden, _ = self.lstm(spectrum.abs().transpose(1, 2))
        mask = self.mask(hidden).sigmoid().transpose(1, 2)
        return torch.istft(spectrum * mask, 256, 64, window=self.window, length=sound.shape[-1])


def separator() -> Made:
    """A source separator by masks over the STFT."""
    return Separator(), torch.randn(1, 4096)


class Vocoder(nn.Module):
    """ConvNeXt blocks and an inverse STFT head, as in Vocos (Siuzdak 2023)."""

    window: Tensor

    def __init__(self, mels: int = 80, size: int = 128, n_fft: int = 256) -> None:
        super().__init__()
        self.embed = nn.Conv1d(mels, size, 7, padding=3)
        self.depthwise = nn.Conv1d(size, size, 7, padding=3, groups=size)
        self.norm = nn.LayerNorm(size)
        self.pointwise = nn.Sequential(nn.Linear(size, 3 * size), nn.GELU(), nn.Linear(3 * size, size))
        self.head = nn.Linear(size, n_fft + 2)
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, mel: Tensor) -> Tensor:
        """(batch, mels, frames)."""
        x = self.embed(mel)
        x = x.transpose(1, 2) + self.pointwise(self.norm(self.depthwise(x).transpose(1, 2)))
        magnitude, phase = self.head(x).transpose(1, 2).chunk(2, dim=1)
        magnitude = magnitude.exp().clip(max=1e2)
        spectrum = magnitude * (phase.cos() + 1j * phase.sin())
        return torch.istft(spectrum, self.n_fft, self.n_fft // 4, window=self.window)


def vocoder() -> Made:
    """A vocoder with an inverse STFT head."""
    return Vocoder(), torch.randn(1, 80, 32)


class RotaryAttention(nn.Module):
    """Attention with rotary positions as Llama's first code had them: a product of complex numbers."""

    rotation: Tensor

    def __init__(self, size: int = 64, heads: int = 4, tokens: int = 32) -> None:
        super().__init__()
        self.heads, self.width = heads, size // heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        rates = 1.0 / (10000.0 ** (torch.arange(0, self.width, 2).float() / self.width))
        angles = torch.outer(torch.arange(tokens).float(), rates)
        self.register_buffer("rotation", torch.polar(torch.ones_like(angles), angles))

    def rotate(self, x: Tensor) -> Tensor:
        """(batch, tokens, heads, width)."""
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.rotation[: x.shape[1], None, :]
        return torch.view_as_real(turned).flatten(3).type_as(x)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, size)."""
        q, k, v = self.qkv(x).view(*x.shape[:2], self.heads, -1).chunk(3, dim=-1)
        q, k = self.rotate(q), self.rotate(k)
        out = nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        return out.transpose(1, 2).flatten(2)


def rotary_attention() -> Made:
    """Rotary positions in complex form."""
    return RotaryAttention(), torch.randn(1, 32, 64)


class FourierLayer(nn.Module):
    """A product with learned weights over the low frequencies (Li et al. 2021)."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.modes = modes
        scale = 1 / width**2
        self.weight = nn.Parameter(scale * torch.rand(width, width, modes, modes, dtype=torch.cfloat))
        self.local = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, height, length)."""
        m = self.modes
        spectrum = torch.fft.rfft2(x)
        kept = torch.zeros_like(spectrum)
        kept[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.weight)
        return torch.fft.irfft2(kept, s=x.shape[-2:]) + self.local(x)


class FourierOperator(nn.Module):
    """The Fourier neural operator on a grid."""

    def __init__(self, width: int = 16, modes: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.lift = nn.Conv2d(1, width, 1)
        self.layers = nn.ModuleList(FourierLayer(width, modes) for _ in range(layers))
        self.project = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 1, height, length)."""
        x = self.lift(x)
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return self.project(x)


def fourier_operator() -> Made:
    """A Fourier neural operator."""
    return FourierOperator(), torch.randn(1, 1, 32, 32)


class DiagonalStateSpace(nn.Module):
    """S4D (Gu et al. 2022): the kernel of a diagonal state space, applied by a transform."""

    def __init__(self, size: int = 16, states: int = 32) -> None:
        super().__init__()
        self.log_step = nn.Parameter(torch.rand(size) - 5.0)
        self.out = nn.Parameter(torch.view_as_real(torch.randn(size, states // 2, dtype=torch.cfloat)))
        self.log_real = nn.Parameter(torch.log(0.5 * torch.ones(size, states // 2)))
        self.imag = nn.Parameter(math.pi * torch.arange(states // 2).repeat(size, 1).float())
        self.skip = nn.Parameter(torch.randn(size))

    def forward(self, u: Tensor) -> Tensor:
        """(batch, size, length)."""
        length = u.shape[-1]
        step = torch.exp(self.log_step)
        a = -torch.exp(self.log_real) + 1j * self.imag
        powers = (a * step[:, None])[..., None] * torch.arange(length, device=u.device)
        c = torch.view_as_complex(self.out) * (torch.exp(a * step[:, None]) - 1.0) / a
        kernel = 2 * torch.einsum("hn,hnl->hl", c, torch.exp(powers)).real
        spectrum = torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
        return torch.fft.irfft(spectrum, n=2 * length)[..., :length] + u * self.skip[:, None]


def state_space() -> Made:
    """A diagonal state space."""
    return DiagonalStateSpace(), torch.randn(1, 16, 64)


class FilterBank(nn.Module):
    """A band-pass filter bank whose taps SciPy designs, in float64."""

    taps: Tensor

    def __init__(self, taps: int = 65) -> None:
        super().__init__()
        from scipy.signal import firwin

        bands = [firwin(taps, [low, low + 0.2], pass_zero=False) for low in (0.1, 0.3, 0.5)]
        self.register_buffer("taps", torch.stack([torch.from_numpy(band) for band in bands]))

    def forward(self, sound: Tensor) -> Tensor:
        """(batch, 1, samples)."""
        taps = self.taps[:, None].to(sound.dtype)
        return nn.functional.conv1d(sound, taps, padding=taps.shape[-1] // 2)


def filter_bank() -> Made:
    """A filter bank with SciPy's float64 taps."""
    return FilterBank(), torch.randn(1, 1, 512)


class CosineSchedule(nn.Module):
    """One denoising step whose schedule is computed in float64 on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, length)."""
        t = torch.linspace(0, 1, 50, dtype=torch.float64, device=x.device)
        alphas = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        sigma = (1 - alphas[25]).sqrt()
        return (x - sigma.to(x.dtype) * self.net(x)) / alphas[25].sqrt().to(x.dtype)


def cosine_schedule() -> Made:
    """A noise schedule computed in float64."""
    return CosineSchedule(), torch.randn(1, 3, 16, 16)


def diffusers_schedule() -> Made:
    """One step of diffusers' Euler scheduler after a small UNet."""
    from diffusers import EulerDiscreteScheduler, UNet2DModel

    unet = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        block_out_channels=(32, 32),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    scheduler = EulerDiscreteScheduler()

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unet = unet

        def forward(self, sample: Tensor) -> Tensor:
            scheduler.set_timesteps(10, device=sample.device)
            for t in scheduler.timesteps[:2]:
                noise = self.unet(scheduler.scale_model_input(sample, t), t).sample
                sample = scheduler.step(noise, t, sample).prev_sample
            return sample

    return Step(), torch.randn(1, 3, 16, 16)


def fnet() -> Made:
    """FNet: a two-dimensional transform in the place of attention (Lee-Thorp et al. 2021)."""
    from transformers import FNetConfig, FNetModel

    config = FNetConfig(num_hidden_layers=2, hidden_size=64, intermediate_size=128, vocab_size=500)
    return FNetModel(config), {"input_ids": torch.arange(32).unsqueeze(0)}


MODELS: dict[str, Callable[[], Made]] = {
    make.__name__: make
    for make in (
        complex_transformer,
        cosine_schedule,
        diffusers_schedule,
        filter_bank,
        fnet,
        fourier_operator,
        rotary_attention,
        separator,
        state_space,
        vocoder,
    )
}
