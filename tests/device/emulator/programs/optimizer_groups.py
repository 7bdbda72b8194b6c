# source: torch/optim/optimizer.py (2.13.0), load_state_dict casts the state to the device of its parameter
# torch: 2.3 2.13
# expect: exit 0
import torch

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)).to("mps")
groups = [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[1].parameters(), "weight_decay": 0.1}]
optimizer = torch.optim.Adam(groups, lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.2], total_steps=10)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.rand(5, 3, device="mps")).pow(2).mean().backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    schedule.step()
torch.save(optimizer.state_dict(), "optimizer.pt")
saved = torch.load("optimizer.pt", map_location="cpu")
assert saved["state"][0]["exp_avg"].device.type == "cpu"
optimizer.load_state_dict(saved)
state = optimizer.state[model[0].weight]
assert state["exp_avg"].is_mps
assert state["step"].device.type == "cpu"
assert state["step"].item() == 3
optimizer.step()
optimizer.add_param_group({"params": torch.nn.Parameter(torch.ones(2, device="mps"))})
assert len(optimizer.param_groups) == 3
