# source: torch/autograd/gradcheck.py (2.13.0): wants float64, which a Mac does not have
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype" at line 7
import torch

x = torch.rand(3, device="mps", requires_grad=True)
x.sin().sum().backward()
torch.autograd.gradcheck(torch.sin, x.detach().double().requires_grad_())  # raises
