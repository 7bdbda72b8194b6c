# source: torch/utils/data/sampler.py (2.13.0), RandomSampler draws torch.randperm with the loader's generator on the CPU
# expect: exit 1, raises RuntimeError "Expected a 'mps' device type for generator but found 'cpu'" at line 11
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_device("mps")
data = TensorDataset(torch.rand(6, 2))
good = DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator(device="mps"))
assert sum(len(x) for (x,) in good) == 6
bad = DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator("cpu"))
for (x,) in bad:  # raises
    assert x.is_mps
