"""Remedies for Fourier transforms: products with matrices of cosines and sines."""

from __future__ import annotations

from opcheck.judge.remedies.remedy import Remedy

_CLOSE = 1e-5
_GRADIENT = 1e-4
_COST = (
    "n * n products where an FFT has n log n: well for a few hundred points. The parts are two real tensors; make "
    "the matrices once, and keep them as buffers."
)


def _remedy(name: str, title: str, kinds: tuple[str, ...], before: str, after: str) -> Remedy:
    return Remedy(
        id=name,
        title=title,
        kinds=kinds,
        before=before,
        after=after,
        module="transforms",
        functions=_NEEDS.get(name, ("dft_matrices", name)),
        tolerance=_CLOSE,
        gradient=_GRADIENT,
        remark=_COST,
    )


_NEEDS = {"dft2": ("dft_matrices", "dft", "dft2")}

FOURIER = (
    _remedy(
        "rdft",
        "rfft by real matrices",
        ("aten::_fft_r2c", "fft/rfft"),
        "{spectrum} = torch.fft.rfft({x})",
        "{real}, {imaginary} = rdft({x})",
    ),
    _remedy(
        "irdft",
        "irfft by real matrices",
        ("aten::_fft_c2r", "fft/irfft"),
        "{x} = torch.fft.irfft({spectrum}, {n})",
        "{x} = irdft({real}, {imaginary}, {n})",
    ),
    _remedy(
        "dft",
        "fft by real matrices",
        ("aten::_fft_c2c", "fft/fft"),
        "{spectrum} = torch.fft.fft({z})",
        "{real}, {imaginary} = dft({z_real}, {z_imaginary})",
    ),
    _remedy(
        "idft",
        "ifft by real matrices",
        ("fft/ifft",),
        "{z} = torch.fft.ifft({spectrum})",
        "{z_real}, {z_imaginary} = idft({real}, {imaginary})",
    ),
    _remedy(
        "dft2",
        "fft2 by real matrices, one dimension after the other",
        ("fft/fft2", "fft/fftn"),
        "{spectrum} = torch.fft.fft2({z})",
        "{real}, {imaginary} = dft2({z_real}, {z_imaginary})",
    ),
    _remedy(
        "fourier_mixing",
        "The real part of fftn by four real products, as FNet mixes",
        ("fft/mixing",),
        "{x} = torch.fft.fftn({x}, dim=(-2, -1)).real",
        "{x} = fourier_mixing({x})",
    ),
    _remedy(
        "stft_conv",
        "stft by a convolution",
        ("aten::stft", "fft/stft"),
        "{spectrum} = torch.stft({x}, {n}, {hop}, window={window}, return_complex=True)",
        "{real}, {imaginary} = stft_conv({x}, {window}, {hop})",
    ),
    _remedy(
        "istft_conv",
        "istft by a transposed convolution",
        ("aten::istft", "fft/istft"),
        "{x} = torch.istft({spectrum}, {n}, {hop}, window={window})",
        "{x} = istft_conv({real}, {imaginary}, {window}, {hop})",
    ),
)
