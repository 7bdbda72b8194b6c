# slow: 1
# source: accelerate/state.py (1.15): the device is mps where torch.backends.mps says so
# expect: exit 0
import torch
from accelerate import Accelerator

accelerator = Accelerator()
assert accelerator.device == torch.device("mps")
assert accelerator.num_processes == 1
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.rand(8, 3), batch_size=4, shuffle=True)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)
assert model.weight.is_mps
for x in data:
    assert x.is_mps
    with accelerator.accumulate(model):
        loss = model(x).pow(2).mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
assert accelerator.gather(loss.detach()).dim() <= 1
accelerator.save_state("state")
accelerator.load_state("state")
assert accelerator.unwrap_model(model).weight.is_mps
