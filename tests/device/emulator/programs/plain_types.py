# source: torch/nn/parameter.py, torch/_tensor.py (2.13.0): a tensor of mps is of the class torch.Tensor
# expect: exit 0
import torch

x = torch.ones(2, device="mps")
assert type(x) is torch.Tensor
assert x.__class__ is torch.Tensor
assert type(x + 1) is torch.Tensor
w = torch.nn.Parameter(x)
assert type(w) is torch.nn.Parameter
model = torch.nn.Linear(2, 2).to("mps")
assert type(model.weight) is torch.nn.Parameter
assert type(model.weight.data) is torch.Tensor
assert type(model.weight.detach()) is torch.Tensor
assert isinstance(model.weight, torch.nn.Parameter)
assert not isinstance(x, torch.nn.Parameter)
assert repr(w) == "Parameter containing:\ntensor([1., 1.], device='mps:0', requires_grad=True)"
