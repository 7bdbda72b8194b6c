# source: op list of torch 1.13: no cumsum; https://github.com/pytorch/pytorch/issues/77764
# torch: 1.13
# macos: 13
# expect: exit 1, raises NotImplementedError "The operator 'aten::cumsum.out' is not currently implemented for the MPS device." at line 9
import torch

x = torch.arange(4.0, device="mps")
assert x.sum().item() == 6
x.cumsum(0)  # raises
