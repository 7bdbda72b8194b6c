# source: torch/nn/utils/convert_parameters.py, prune.py, init.py (2.13.0)
# expect: exit 0
import torch
from torch.nn.utils import parameters_to_vector, prune, vector_to_parameters

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to("mps")
vector = parameters_to_vector(model.parameters())
assert vector.is_mps
vector_to_parameters(torch.zeros_like(vector), model.parameters())
assert model[0].weight.abs().sum().item() == 0
torch.nn.init.xavier_uniform_(model[0].weight)
torch.nn.init.kaiming_normal_(model[1].weight)
torch.nn.init.trunc_normal_(model[0].bias, std=0.02)
torch.nn.init.orthogonal_(torch.empty(3, 3))
prune.l1_unstructured(model[0], "weight", amount=0.5)
assert (model[0].weight == 0).sum().item() == 6
assert model[0].weight_mask.is_mps
prune.remove(model[0], "weight")
model.requires_grad_(False)
assert not any(p.requires_grad for p in model.parameters())
model.register_buffer("seen", torch.zeros(1, device="mps"))
assert model.state_dict()["seen"].is_mps
assert sum(p.numel() for p in model.parameters()) == 26
