# source: torch/csrc/autograd/engine.cpp, torch/nn/parallel/data_parallel.py (2.13.0)
# expect: exit 0
from concurrent.futures import ThreadPoolExecutor

import torch

model = torch.nn.Linear(3, 2).to("mps")


def work(seed):
    g = torch.Generator("mps").manual_seed(seed)
    return model(torch.rand(1, 3, device="mps", generator=g)).sum()


with ThreadPoolExecutor(2) as pool:
    parts = list(pool.map(work, range(3)))
loss = sum(parts)
loss.backward()
assert model.weight.grad.is_mps
assert torch.nn.DataParallel(model)(torch.ones(1, 3, device="mps")).is_mps
