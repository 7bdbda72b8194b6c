# source: torch/random.py (2.13.0), fork_rng(device_type="mps") needs get_rng_state with a device
# expect: exit 0
import torch

torch.manual_seed(1)
with torch.random.fork_rng():
    torch.manual_seed(5)
    inside = torch.rand(2)
after = torch.rand(2)
torch.manual_seed(1)
assert torch.equal(after, torch.rand(2))
with torch.random.fork_rng(devices=[], device_type="mps"):
    torch.rand(3)
with torch.random.fork_rng(device_type="mps"):
    torch.rand(3, device="mps")
