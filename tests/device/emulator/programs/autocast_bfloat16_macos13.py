# source: torch/amp/autocast_mode.py (2.7.1): bfloat16 needs macOS 14, else a warning and no autocast
# torch: 2.7
# macos: 13
# warns: In MPS autocast, but the target dtype
# expect: exit 0
import torch

x = torch.rand(2, 2, device="mps")
with torch.autocast("mps", dtype=torch.bfloat16):
    assert (x @ x).dtype is torch.float32
with torch.autocast("mps", dtype=torch.float16):
    assert (x @ x).dtype is torch.float16
