# source: torch/profiler/profiler.py (2.13.0): the CPU's activities are recorded on a Mac
# expect: exit 0
import torch
from torch.profiler import ProfilerActivity, profile, record_function

x = torch.rand(4, 4, device="mps")
with profile(activities=[ProfilerActivity.CPU]) as prof, record_function("step"):
    y = (x @ x).sum()
assert any(e.key == "step" for e in prof.key_averages())
with torch.autograd.profiler.profile() as old:
    x.exp()
assert old.key_averages() is not None
