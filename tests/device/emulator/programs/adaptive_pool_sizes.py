# source: aten/src/ATen/native/mps/operations/AdaptivePooling.mm (2.13.0); https://github.com/pytorch/pytorch/issues/96056
# torch: 2.3 2.13
# expect: exit 1, raises RuntimeError "Adaptive pool MPS: input sizes must be divisible by output sizes." at line 11
import torch
from torch.nn import functional as F

x = torch.rand(1, 2, 8, 8, device="mps")
assert F.adaptive_avg_pool2d(x, 4).shape == (1, 2, 4, 4)
assert F.adaptive_avg_pool2d(x, 1).shape == (1, 2, 1, 1)
assert F.adaptive_avg_pool2d(x.cpu(), 3).shape == (1, 2, 3, 3)
F.adaptive_avg_pool2d(x, 3)  # raises
