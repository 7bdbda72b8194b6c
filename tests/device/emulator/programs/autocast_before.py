# source: torch/amp/autocast_mode.py (2.3.0): "User specified an unsupported autocast device_type 'mps'"; https://github.com/pytorch/pytorch/issues/88415
# torch: 2.3
# macos: 14
# expect: exit 1, raises RuntimeError "User specified an unsupported autocast device_type 'mps'" at line 8
import torch

x = torch.rand(2, 2, device="mps")
with torch.autocast(device_type="mps", dtype=torch.float16):  # raises
    x @ x
