# source: torch/nn/modules/lazy.py, torch/nn/parameter.py (2.13.0): an UninitializedParameter moves before it has a shape
# expect: exit 0
import torch

model = torch.nn.Sequential(torch.nn.LazyConv2d(4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
model = model.to("mps")
assert isinstance(model[0].weight, torch.nn.UninitializedParameter)
assert model[0].weight.device.type == "mps"
out = model(torch.rand(2, 1, 6, 6, device="mps"))
assert out.shape == (2, 2)
assert out.is_mps
assert type(model[2]) is torch.nn.Linear
assert model[2].weight.shape == (2, 64)
assert model[2].weight.is_mps
torch.optim.Adam(model.parameters()).step()
lazy = torch.nn.LazyBatchNorm1d(device="mps")
assert lazy(torch.rand(3, 5, device="mps")).shape == (3, 5)
