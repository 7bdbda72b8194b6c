# source: ATen/native/IndexingUtils.h and TensorAdvancedIndexing.cpp (2.13.0): an index may be on the CPU
# expect: exit 0
import torch

x = torch.arange(12.0, device="mps").reshape(3, 4)
rows = torch.tensor([2, 0])
assert x[rows].tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
assert x[rows].is_mps
assert x[torch.tensor([True, False, True])].shape == (2, 4)
assert x[[1, 2], [0, 3]].tolist() == [4, 11]
assert x[:, rows.to("mps")].shape == (3, 2)
x[rows] = 0.0
assert x.sum().item() == 22
x[x > 5] = -1
assert x.min().item() == -1
assert x[1, 2].item() == -1
assert x[..., None].shape == (3, 4, 1)
assert torch.arange(5)[torch.tensor(2, device="mps")].item() == 2
