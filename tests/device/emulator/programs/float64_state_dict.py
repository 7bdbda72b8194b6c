# source: torch/nn/modules/module.py (2.13.0), _load_from_state_dict copies into the parameter: float64 on the CPU is cast
# expect: exit 0
import torch

state = {k: v.double() for k, v in torch.nn.Linear(2, 2).state_dict().items()}
model = torch.nn.Linear(2, 2).to("mps")
model.load_state_dict(state)
assert model.weight.dtype is torch.float32
torch.testing.assert_close(model.weight.cpu().double(), state["weight"], atol=1e-6, rtol=0)
