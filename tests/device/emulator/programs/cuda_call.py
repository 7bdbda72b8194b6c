# source: torch/cuda/__init__.py (2.13.0), _lazy_init: a Mac's torch is not compiled with CUDA
# torch: 2.3 2.13
# expect: exit 1, raises AssertionError "Torch not compiled with CUDA enabled" at line 10
import torch

assert not torch.cuda.is_available()
assert torch.cuda.device_count() == 0
device = "cuda" if torch.cuda.is_available() else "mps"
model = torch.nn.Linear(2, 2).to(device)
x = torch.rand(1, 2).cuda()  # raises
model(x)
