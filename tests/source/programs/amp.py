"""Mixed precision with a scaler, and a checkpoint that is read back."""

import tempfile
from pathlib import Path

import torch
from torch.cuda.amp import GradScaler, autocast

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler()
inputs = torch.rand(8, 16).cuda(non_blocking=True)
labels = torch.randint(0, 4, (8,)).type(torch.cuda.LongTensor)
for _ in range(2):
    optimizer.zero_grad(set_to_none=True)
    with autocast(dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
torch.cuda.synchronize()
path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, path)
state = torch.load(path, map_location="cuda")
model.load_state_dict(state["model"])
scaler.load_state_dict(state["scaler"])
torch.cuda.empty_cache()
print("loss", loss.item() > 0, next(model.parameters()).device.type, scaler.is_enabled())
