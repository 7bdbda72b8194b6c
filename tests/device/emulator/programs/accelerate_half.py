# slow: 1
# source: accelerate/accelerator.py (1.15): mixed_precision="fp16" on mps uses torch.amp.GradScaler("mps")
# expect: exit 0
import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp16")
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
x = torch.rand(2, 3, device=accelerator.device)
with accelerator.autocast():
    out = model(x)
accelerator.backward(out.mean())
accelerator.unscale_gradients()
optimizer.step()
assert accelerator.scaler is not None
assert model.weight.grad.is_mps
