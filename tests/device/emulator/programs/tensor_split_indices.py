# source: aten/src/ATen/native/TensorShape.cpp (2.13.0), tensor_split
# expect: exit 1, raises RuntimeError "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on mps:0" at line 10
import torch

x = torch.arange(6.0, device="mps")
lengths = torch.tensor([2, 1, 3], device="mps")
assert [len(p) for p in torch.split(x, lengths.tolist())] == [2, 1, 3]
assert [len(p) for p in x.tensor_split(lengths.cumsum(0)[:-1].cpu())] == [2, 1, 3]
assert x.repeat_interleave(lengths.repeat(2)).shape == (12,)
x.tensor_split(lengths.cumsum(0)[:-1])  # raises
