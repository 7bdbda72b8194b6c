# source: torch/nn/utils/weight_norm.py (2.13.0): weight is a plain attribute, computed in a pre-hook
# torch: 2.3 2.13
# expect: exit 0
import warnings

import torch

warnings.simplefilter("ignore")
conv = torch.nn.utils.weight_norm(torch.nn.Conv1d(2, 3, 3))
conv(torch.rand(1, 2, 8))
conv = conv.to("mps")
out = conv(torch.rand(1, 2, 8, device="mps"))
assert out.is_mps
out.sum().backward()
assert conv.weight_g.grad.is_mps
assert sorted(n for n, _ in conv.named_parameters()) == ["bias", "weight_g", "weight_v"]
torch.nn.utils.remove_weight_norm(conv)
assert conv(torch.rand(1, 2, 8, device="mps")).shape == (1, 3, 6)
