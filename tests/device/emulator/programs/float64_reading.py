# source: https://github.com/pytorch/pytorch/issues/122602; torch/csrc/tensor/python_tensor.cpp (2.13.0)
# torch: 2.3 2.13
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead." at line 10
import torch

x = torch.rand(3, device="mps")
assert x.cpu().double().dtype is torch.float64
assert (x * 2.5).dtype is torch.float32
assert x.mean().item() <= 1.0
x.double()  # raises
