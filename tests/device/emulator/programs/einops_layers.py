# source: einops/_backends.py (0.8): a tensor is one of torch by isinstance
# needs: einops
# expect: exit 0
import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import Rearrange

x = torch.arange(24.0, device="mps").reshape(2, 3, 4)
assert rearrange(x, "b c (h w) -> b h w c", h=2).shape == (2, 2, 2, 3)
assert reduce(x, "b c d -> b d", "mean").is_mps
assert repeat(x, "b c d -> b (r c) d", r=2).shape == (2, 6, 4)
assert einsum(x, x, "b c d, b e d -> b c e").shape == (2, 3, 3)
packed, shapes = pack([x, x[:, :1]], "b * d")
assert [tuple(p.shape) for p in unpack(packed, shapes, "b * d")] == [(2, 3, 4), (2, 1, 4)]
model = torch.nn.Sequential(Rearrange("b c d -> b (c d)"), torch.nn.Linear(12, 2)).to("mps")
assert model(x).shape == (2, 2)
