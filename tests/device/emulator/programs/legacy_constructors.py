# source: torch/csrc/utils/tensor_new.cpp (2.13.0), legacy_tensor_ctor: torch.FloatTensor makes a tensor of the CPU
# expect: exit 0
import torch

assert torch.FloatTensor([1, 2]).device.type == "cpu"
assert torch.Tensor(2, 3).device.type == "cpu"
x = torch.ones(2, 3, device="mps")
assert x.new(4).shape == (4,)
assert x.new(4).device == x.device
assert x.new_zeros(2).device == x.device
assert x.new_full((2,), 7).tolist() == [7.0, 7.0]
assert x.new_tensor([1, 2]).dtype is torch.float32
assert x.new_empty(1, dtype=torch.int32).dtype is torch.int32
assert x.new_ones(2, device="cpu").device.type == "cpu"
assert torch.zeros_like(x).device == x.device
assert torch.rand_like(x, device="cpu").device.type == "cpu"
