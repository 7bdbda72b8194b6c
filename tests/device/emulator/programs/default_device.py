# source: torch/utils/_device.py (2.13.0), _device_constructors
# torch: 2.3 2.13
# expect: exit 0
import torch

torch.set_default_device("mps")
assert torch.zeros(2).device == torch.device("mps:0")
assert torch.tensor([1.0]).is_mps
assert torch.nn.Linear(2, 2).weight.is_mps
assert torch.arange(3).is_mps
assert torch.get_default_device() == torch.device("mps:0")
assert torch.zeros(2, device="cpu").device.type == "cpu"
with torch.device("cpu"):
    assert torch.zeros(2).device.type == "cpu"
assert torch.as_tensor([1]).is_mps
assert torch.eye(2).is_mps
assert torch.randperm(4).is_mps
loss = torch.nn.Linear(3, 1)(torch.rand(5, 3)).mean()
loss.backward()
torch.set_default_device(None)
assert torch.zeros(2).device.type == "cpu"
with torch.device("mps"):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
assert {p.device.type for p in model.parameters()} == {"mps"}
assert {b.device.type for b in model.buffers()} == {"mps"}
