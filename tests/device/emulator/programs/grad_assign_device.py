# source: torch/csrc/autograd/python_variable.cpp (2.13.0), THPVariable_set_grad
# expect: exit 1, raises RuntimeError "attempting to assign a gradient with device type 'cpu' to a tensor with device type 'mps'." at line 7
import torch

w = torch.nn.Parameter(torch.ones(2, device="mps"))
w.grad = torch.ones(2, device="mps")
w.grad = torch.ones(2)  # raises
