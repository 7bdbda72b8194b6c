# source: torch/distributions/utils.py (2.13.0), broadcast_all: Python numbers take the default dtype; numpy's arrays keep float64
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype" at line 11
import numpy as np
import torch

rewards = np.array([1.0, 0.5, 0.25])
ok = torch.tensor(rewards, dtype=torch.float32, device="mps")
assert ok.dtype is torch.float32
assert (ok * np.float64(2.0)).dtype is torch.float32
assert torch.tensor([np.float64(1.0), 2.0]).dtype is torch.float64
torch.tensor(np.float64(0.5), device="mps")  # raises
