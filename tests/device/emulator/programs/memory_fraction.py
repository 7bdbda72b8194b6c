# source: torch/mps/__init__.py (2.13.0), set_per_process_memory_fraction
# expect: exit 1, raises ValueError "Invalid fraction value: 3.0" at line 7
import torch

torch.mps.set_per_process_memory_fraction(0.8)
print("a fraction that a Mac takes")
torch.mps.set_per_process_memory_fraction(3.0)
