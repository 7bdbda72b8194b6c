# source: torch/serialization.py (2.13.0): a whole module is pickled with its device
# expect: exit 0
import torch

model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).to("mps")
torch.save(model, "whole.pt")
again = torch.load("whole.pt", weights_only=False)
assert again[0].weight.is_mps
assert isinstance(again[0].weight, torch.nn.Parameter)
assert again[1].num_batches_tracked.is_mps
on_cpu = torch.load("whole.pt", weights_only=False, map_location="cpu")
assert on_cpu[0].weight.device.type == "cpu"
torch.save(model.state_dict(), "old.pt", _use_new_zipfile_serialization=False)
assert torch.load("old.pt")["0.weight"].is_mps
torch.save({"epoch": 3, "best": torch.tensor(0.5, device="mps")}, "best.pt")
with torch.serialization.safe_globals([set]):
    assert torch.load("best.pt", weights_only=True)["best"].is_mps
mapped = torch.load("whole.pt", map_location="cpu", mmap=True, weights_only=False)
assert mapped[0].weight.shape == (3, 2)
torch.set_default_device("mps")
assert torch.load("old.pt")["0.weight"].is_mps
