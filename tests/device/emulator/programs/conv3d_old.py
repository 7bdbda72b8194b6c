# source: aten/src/ATen/native/mps/operations/Convolution.mm (2.1.0): "Conv3D is not supported on MPS"; https://github.com/pytorch/pytorch/issues/114765
# torch: 2.1
# macos: 13
# expect: exit 1, raises RuntimeError "Conv3D is not supported on MPS" at line 9
import torch

conv = torch.nn.Conv3d(1, 2, 3)
assert conv(torch.rand(1, 1, 4, 4, 4)).shape == (1, 2, 2, 2, 2)
conv.to("mps")(torch.rand(1, 1, 4, 4, 4, device="mps"))  # raises
