# source: torch/nn/modules/module.py (2.13.0), to_empty; torch/_meta_registrations.py
# expect: exit 3, raises NotImplementedError "Cannot copy out of meta tensor; no data!" at line 13
import torch

with torch.device("meta"):
    model = torch.nn.Linear(2, 2)
ready = torch.nn.Linear(2, 2, device="meta").to_empty(device="mps")
assert ready.weight.is_mps
state = torch.nn.Linear(2, 2).to("mps").state_dict()
filled = torch.nn.Linear(2, 2, device="meta")
filled.load_state_dict(state, assign=True)
assert filled.weight.is_mps
model.to("mps")  # raises
