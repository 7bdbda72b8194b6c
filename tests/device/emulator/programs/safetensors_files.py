# source: safetensors/torch.py (0.8): load_file(device="mps"), save_file of tensors on mps
# expect: exit 0
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

model = torch.nn.Linear(3, 2).to("mps")
save_file(model.state_dict(), "weights.safetensors", metadata={"format": "pt"})
state = load_file("weights.safetensors", device="mps")
assert state["weight"].is_mps
assert torch.equal(state["weight"], model.weight)
assert load_file("weights.safetensors")["bias"].device.type == "cpu"
with safe_open("weights.safetensors", framework="pt", device="mps") as file:
    assert file.get_tensor("bias").is_mps
    assert file.get_slice("weight")[:1].is_mps
save_model(model, "model.safetensors")
load_model(torch.nn.Linear(3, 2).to("mps"), "model.safetensors", device="mps")
