# source: torch/optim/adam.py, torch/utils/_foreach_utils.py (2.13.0): fused on mps, its step is on mps
# expect: exit 0
import torch

model = torch.nn.Linear(3, 2).to("mps")
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
model(torch.rand(2, 3, device="mps")).sum().backward()
optimizer.step()
assert optimizer.state[model.weight]["step"].is_mps
assert optimizer.state[model.weight]["exp_avg"].is_mps
plain = torch.optim.AdamW(model.parameters())
plain.step()
assert plain.state[model.weight]["step"].device.type == "cpu"
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
sgd.step()
state = optimizer.state_dict()
again = torch.optim.AdamW(model.parameters(), fused=True)
again.load_state_dict(state)
assert again.state[model.weight]["exp_avg_sq"].is_mps
again.step()
assert again.state[model.weight]["step"].item() == 2
