# source: https://github.com/pytorch/pytorch/issues/122602
# torch: 1.13 2.3 2.13
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead." at line 12
import numpy as np
import torch

target = np.linspace(0, 1, 5)
x = torch.from_numpy(target.astype(np.float32)).to("mps")
assert x.dtype is torch.float32
assert torch.tensor(2.5, device="mps").dtype is torch.float32
assert torch.as_tensor(3, device="mps").dtype is torch.int64
torch.from_numpy(target).to("mps")  # raises
