# source: torch/mps/event.py, torch/mps/__init__.py (2.13.0)
# expect: exit 0
import torch

start, end = torch.mps.Event(enable_timing=True), torch.mps.event.Event(enable_timing=True)
start.record()
x = torch.rand(8, 8, device="mps") @ torch.rand(8, 8, device="mps")
end.record()
end.synchronize()
assert start.query()
assert start.elapsed_time(end) >= 0
torch.mps.synchronize()
torch.mps.empty_cache()
assert torch.mps.current_allocated_memory() >= x.numel() * 4
assert torch.mps.driver_allocated_memory() >= torch.mps.current_allocated_memory()
assert torch.mps.recommended_max_memory() > 0
assert torch.mps.device_count() == 1
torch.mps.set_per_process_memory_fraction(0.5)
with torch.mps.profiler.profile(mode="interval", wait_until_completed=False):
    x.sum()
assert torch.backends.mps.is_available()
assert torch.backends.mps.is_built()
assert torch.backends.mps.is_macos13_or_newer()
assert not torch.mps.profiler.is_capturing_metal()
