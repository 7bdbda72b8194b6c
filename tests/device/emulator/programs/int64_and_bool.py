# source: aten/src/ATen/native/mps/operations (2.13.0): integers of all widths and bool have kernels
# torch: 2.13 2.15
# expect: exit 0
import torch

x = torch.arange(6, device="mps").reshape(2, 3)
assert (x.sum().item(), x.max().item(), x.argmax().item()) == (15, 5, 5)
assert x.sum().dtype is torch.int64
assert x.cumsum(1).tolist() == [[0, 1, 3], [3, 7, 12]]
assert (x // 2).tolist() == [[0, 0, 1], [1, 2, 2]]
assert (x / 2).dtype is torch.float32
assert (x % 2 == 0).sum().item() == 3
assert (x > 1).any().item()
assert not bool((x > 1).all())
assert x.sort(descending=True).values[0].tolist() == [2, 1, 0]
assert x.flatten().unique().numel() == 6
values, places = x.float().topk(2)
assert places.dtype is torch.int64
assert x.nonzero().shape == (5, 2)
assert torch.bincount(x.flatten()).tolist() == [1] * 6
assert torch.isin(x, torch.tensor([1, 2], device="mps")).sum().item() == 2
assert x.bitwise_and(1).sum().item() == 3
assert torch.searchsorted(torch.arange(5.0, device="mps"), torch.tensor([2.5], device="mps")).item() == 3
