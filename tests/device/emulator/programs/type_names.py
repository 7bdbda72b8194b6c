# source: torch/csrc/utils/tensor_types.cpp (2.13.0), options_from_string; https://github.com/pytorch/pytorch/issues/118517
# torch: 2.3 2.13
# expect: exit 1, raises ValueError "invalid type: 'torch.mps.FloatTensor'" at line 13
import torch

x = torch.ones(2, device="mps")
assert x.type() == "torch.mps.FloatTensor"
assert x.half().type() == "torch.mps.HalfTensor"
assert x.type(torch.int32).dtype is torch.int32
assert x.type(torch.int32).device.type == "mps"
assert x.type("torch.FloatTensor").device.type == "cpu"
assert x.type(torch.LongTensor).device.type == "cpu"
torch.ones(2).type(x.type())  # raises
