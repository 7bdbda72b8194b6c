# source: aten/src/ATen/native/mps/operations/Convolution.mm (2.9.0); https://github.com/pytorch/pytorch/issues/152278
# torch: 2.9
# macos: 14
# expect: exit 1, raises NotImplementedError "Output channels > 65536 not supported at the MPS device." at line 9
import torch

x = torch.rand(1, 1, 4, device="mps")
assert torch.conv1d(x, torch.rand(8, 1, 1, device="mps")).shape == (1, 8, 4)
torch.conv1d(x, torch.rand(65537, 1, 1, device="mps"))  # raises
