# source: aten/src/ATen/mps/EmptyTensor.cpp (2.15.0): complex128 is refused as float64 is; before, only operators refuse it
# torch: 2.15
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64." at line 8
import torch

a = torch.ones(2, dtype=torch.complex64, device="mps")
assert a.is_complex()
torch.ones(2, dtype=torch.complex128).to("mps")  # raises
