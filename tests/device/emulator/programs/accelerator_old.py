# source: torch/__init__.py (2.3.0) has no torch.accelerator; torch/accelerator came with 2.6
# torch: 2.3
# macos: 14
# expect: exit 1, raises AttributeError "module 'torch' has no attribute 'accelerator'" at line 9
import torch

assert not hasattr(torch.mps, "recommended_max_memory")
assert not hasattr(torch.mps, "compile_shader")
device = torch.accelerator.current_accelerator()  # raises
