# source: aten/src/ATen/native/mps/operations/Indexing.mm (2.13.0), Placeholder; https://github.com/tracel-ai/burn/pull/4073
# torch: 2.3 2.9 2.13
# expect: exit 1, raises RuntimeError "Placeholder storage has not been allocated on MPS device!" at line 8
import torch

table = torch.nn.Embedding(10, 4).to("mps")
assert table(torch.tensor([1, 2], device="mps")).shape == (2, 4)
table(torch.tensor([1, 2]))  # raises
