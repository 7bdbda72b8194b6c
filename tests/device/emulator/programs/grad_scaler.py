# source: torch/amp/grad_scaler.py (2.13.0), _unscale_grads_
# expect: exit 0
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1).to("mps")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("mps", init_scale=1024.0)
before = model.weight.detach().clone()
for _ in range(3):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("mps", dtype=torch.float16):
        loss = model(torch.rand(8, 4, device="mps")).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norm.is_mps
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 1024.0
assert scaler.is_enabled()
assert not torch.equal(before, model.weight)
model.weight.grad.fill_(float("inf"))
scaler.scale(torch.ones(1, device="mps"))
scaler.step(optimizer)
scaler.update()
assert scaler.get_scale() == 512.0
scaler.load_state_dict(scaler.state_dict())
