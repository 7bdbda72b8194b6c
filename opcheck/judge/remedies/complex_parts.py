"""Complex arithmetic on real tensors whose last dimension has the real and the imaginary part."""

import torch


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


def complex_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """``torch.nn.functional.linear`` for complex x and weight, as real products."""
    real, imaginary = weight.unbind(-1)
    x_re, x_im = x.unbind(-1)
    linear = torch.nn.functional.linear
    made = torch.stack(
        (
            linear(x_re, real) - linear(x_im, imaginary),
            linear(x_re, imaginary) + linear(x_im, real),
        ),
        -1,
    )
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
