# source: aten/src/ATen/mps/EmptyTensor.cpp (2.13.0): a new tensor is on the one device, whatever index is asked for
# expect: exit 0
import torch

x = torch.ones(1, device="mps:0")
assert x.to("mps:0") is x
assert torch.ones(2, device="mps:1").device == torch.device("mps:0")
