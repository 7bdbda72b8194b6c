# source: aten/src/ATen/native/mps/operations/ScatterGather.mm (2.13.0)
# torch: 2.13
# expect: exit 0
import torch

index = torch.tensor([[0, 1], [1, 0]], device="mps")
x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="mps", requires_grad=True)
assert x.gather(1, index).tolist() == [[1, 2], [4, 3]]
out = torch.zeros(2, 2, device="mps").scatter_add(0, index, x)
assert out.tolist() == [[1, 4], [3, 2]]
out.pow(2).sum().backward()
assert x.grad.tolist() == [[2, 4], [6, 8]]
mean = torch.zeros(2, device="mps").index_add(0, index[0], torch.ones(2, device="mps"))
assert mean.tolist() == [1, 1]
rows = torch.zeros(3, 2, device="mps").index_copy(0, index[0], x.detach())
assert rows.sum().item() == 10
assert x.detach().take_along_dim(index, 1).shape == (2, 2)
reduced = torch.zeros(2, device="mps").scatter_reduce(0, index[0], x[0].detach(), reduce="amax")
assert reduced.tolist() == [1, 2]
