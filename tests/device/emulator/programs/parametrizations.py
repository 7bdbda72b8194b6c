# source: torch/nn/utils/parametrizations.py (2.13.0)
# expect: exit 0
import torch
from torch.nn.utils import parametrizations, parametrize, spectral_norm

layer = parametrizations.weight_norm(torch.nn.Linear(3, 4)).to("mps")
layer(torch.rand(2, 3, device="mps")).sum().backward()
assert layer.parametrizations.weight.original0.grad.is_mps
parametrize.remove_parametrizations(layer, "weight")
assert layer.weight.is_mps
assert isinstance(layer.weight, torch.nn.Parameter)
sn = parametrizations.spectral_norm(torch.nn.Linear(4, 4)).to("mps")
assert sn(torch.rand(2, 4, device="mps")).is_mps
old = spectral_norm(torch.nn.Conv2d(1, 2, 3)).to("mps")
assert old(torch.rand(1, 1, 4, 4, device="mps")).shape == (1, 2, 2, 2)


class Symmetric(torch.nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


sym = torch.nn.Linear(3, 3).to("mps")
parametrize.register_parametrization(sym, "weight", Symmetric())
assert torch.equal(sym.weight, sym.weight.T)
