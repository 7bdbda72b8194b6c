# source: aten/src/ATen/native/mps/operations/Shape.mm (2.9.0), cat_out_mps
# torch: 2.3 2.9
# expect: exit 1, raises RuntimeError "torch.cat(): all input tensors must be on the same device. Received mps:0 and cpu" at line 9
import torch

a = torch.ones(1, 2, device="mps")
assert torch.cat([a, a]).shape == (2, 2)
assert torch.stack([a, a.clone()]).is_mps
torch.cat([a, torch.ones(1, 2)])  # raises
