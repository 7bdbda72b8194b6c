# source: torch/cuda/amp/autocast_mode.py, torch/amp/grad_scaler.py (2.13.0): without CUDA they warn and do nothing
# expect: exit 0
import warnings

import torch

warnings.simplefilter("ignore")
model = torch.nn.Linear(2, 2).to("mps")
scaler = torch.cuda.amp.GradScaler()
assert not scaler.is_enabled()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.cuda.amp.autocast():
    loss = model(torch.ones(1, 2, device="mps")).sum()
assert loss.dtype is torch.float32
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert torch.cuda.memory_allocated() == 0
assert torch.cuda.is_bf16_supported() is False
assert not torch.backends.cudnn.is_available()
