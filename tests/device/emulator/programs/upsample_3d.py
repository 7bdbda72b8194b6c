# source: op lists of 2.3 (aten/src/ATen/mps/MPSFallback.mm): upsample_nearest3d.vec falls back since 2.0
# torch: 2.13
# expect: exit 0
import torch
from torch.nn import functional as F

x = torch.rand(1, 2, 4, 4, device="mps", requires_grad=True)
for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
    assert F.interpolate(x, scale_factor=2, mode=mode).shape == (1, 2, 8, 8)
assert F.interpolate(x, size=(3, 3), mode="bilinear", align_corners=True).shape[-1] == 3
assert F.grid_sample(x, torch.rand(1, 2, 2, 2, device="mps"), align_corners=False).shape[-1] == 2
assert F.pad(x, (1, 1, 1, 1), mode="reflect").shape[-1] == 6
assert F.pad(x, (1, 1), value=3.0).shape[-1] == 6
assert F.adaptive_avg_pool2d(x, 2).shape[-1] == 2
assert F.max_pool2d(x, 2).shape[-1] == 2
assert F.avg_pool2d(x, 2).sum().is_mps
assert F.unfold(x, 2).shape == (1, 8, 9)
assert F.fold(F.unfold(x, 2), (4, 4), 2).shape == x.shape
assert F.pixel_shuffle(torch.rand(1, 4, 2, 2, device="mps"), 2).shape == (1, 1, 4, 4)
