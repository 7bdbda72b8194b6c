"""Attention by flash-attn on halves, with positions as complex numbers."""

import torch
from flash_attn import flash_attn_func

device = "cuda"


def rotate(x: torch.Tensor, freqs: torch.Tensor) -> torch.Tensor:
    """Turn pairs of numbers by an angle."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs[None, :, None]).flatten(-2).type_as(x)


angles = torch.outer(torch.arange(8).double(), 1.0 / 100 ** (torch.arange(0, 8, 2).double() / 8))
freqs = torch.polar(torch.ones_like(angles), angles).to(device)
q, k, v = (torch.rand(2, 8, 4, 8, device=device, dtype=torch.float16) for _ in range(3))
q, k = rotate(q, freqs), rotate(k, freqs)
out = flash_attn_func(q.half(), k.half(), v, causal=True)
print(out.shape, out.device.type)
