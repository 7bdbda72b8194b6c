# source: torch/multiprocessing/reductions.py (2.13.0), torch/storage.py: only CPU storages are shared by files
# expect: exit 0
import torch

model = torch.nn.Linear(2, 2)
model.share_memory()
assert model.weight.is_shared()
queue = torch.multiprocessing.get_context("fork").SimpleQueue()
queue.put(torch.arange(3))
assert queue.get().to("mps").sum().item() == 3
