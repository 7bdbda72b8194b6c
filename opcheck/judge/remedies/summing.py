"""Sums that keep digits in float32 where float64 was used to."""

import torch


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
