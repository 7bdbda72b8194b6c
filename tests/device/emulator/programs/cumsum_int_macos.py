# source: aten/src/ATen/native/mps/operations/UnaryOps.mm (2.3.0): cumsum of int64 needs macOS 13.3
# torch: 2.3
# macos: 14
# expect: exit 0
import torch

mask = torch.tensor([[1, 1, 0], [0, 1, 1]], device="mps")
assert (mask.cumsum(-1) - 1).tolist() == [[0, 1, 1], [-1, 0, 1]]
assert mask.long().cumsum(-1).masked_fill(mask == 0, 1).dtype is torch.int64
