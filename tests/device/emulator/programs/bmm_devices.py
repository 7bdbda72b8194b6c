# source: aten/src/ATen/native/mps/operations/LinearAlgebra.mm (2.13.0), mm_out_mps_impl: checkAllSameGPU
# torch: 2.3 2.13
# expect: exit 1, raises RuntimeError "on CPU, but expected it to be on GPU (while checking arguments for mm" at line 8
import torch

a = torch.rand(2, 3, device="mps")
assert (a @ a.T).shape == (2, 2)
a @ torch.rand(3, 2)  # raises
