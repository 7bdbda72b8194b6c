# source: aten/src/ATen/core/Generator.h (2.13.0), check_generator
# torch: 2.3 2.13
# expect: exit 1, raises RuntimeError "Expected a 'mps' device type for generator but found 'cpu'" at line 8
import torch

g = torch.Generator().manual_seed(0)
noise = torch.randn(2, 2, generator=g).to("mps")
torch.randn(2, 2, generator=g, device="mps")  # raises
