# source: torch/nn/modules/module.py (2.13.0), Module._apply: param.data is set, so that the Parameter object stays
# torch: 2.3 2.13
# expect: exit 0
import weakref

import torch

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
weight = model[0].weight
watch = weakref.ref(weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
model(torch.rand(3, 2)).sum().backward()
held = (model[0].weight * 2).sum()
model.to("mps")
assert model[0].weight is weight is watch()
assert weight.is_mps
assert weight.grad.is_mps
assert optimizer.param_groups[0]["params"][0] is weight
before = weight.detach().clone()
weight.grad.fill_(1)
optimizer.step()
torch.testing.assert_close(weight.detach(), before - 0.5)
assert held.device.type == "cpu"
tied = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
tied[1].weight = tied[0].weight
assert tied.to("mps")[1].weight is tied[0].weight
assert model.half()[0].weight.dtype is torch.float16
assert model.cpu().float()[0].weight.device.type == "cpu"
assert model.to_empty(device="mps")[0].weight.is_mps
