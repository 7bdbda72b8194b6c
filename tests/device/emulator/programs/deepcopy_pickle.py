# source: torch/_tensor.py (2.13.0), __deepcopy__ and _reduce_ex_internal; torch/storage.py
# expect: exit 0
import copy
import io
import pickle

import torch

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("mps")
model(torch.rand(5, 3, device="mps")).sum().backward()
twin = copy.deepcopy(model)
assert twin[0].weight.is_mps
assert twin[0].weight is not model[0].weight
assert model[0].weight.grad.is_mps
assert twin[0].weight.grad is None  # torch/nn/parameter.py copies the values alone
again = pickle.loads(pickle.dumps(model))
assert again[0].weight.device == torch.device("mps:0")
assert torch.equal(again[1].running_mean, model[1].running_mean)
file = io.BytesIO()
torch.save({"w": model[0].weight, "m": model[1].running_mean, "step": 3}, file)
file.seek(0)
state = torch.load(file)
assert state["w"].is_mps
assert state["step"] == 3
file.seek(0)
assert torch.load(file, map_location="cpu")["m"].device.type == "cpu"
x = torch.arange(6, device="mps").reshape(2, 3)
a, b = pickle.loads(pickle.dumps((x, x[0])))
assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
assert b.tolist() == [0, 1, 2]
