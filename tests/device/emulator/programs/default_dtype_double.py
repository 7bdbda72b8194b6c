# source: aten/src/ATen/mps/EmptyTensor.cpp (2.13.0): "Cannot convert a MPS Tensor to float64 dtype"
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead." at line 16
import torch

assert torch.ones(3, device="mps").dtype is torch.float32
torch.set_default_dtype(torch.float64)
try:
    torch.nn.Linear(2, 2).to("mps")
except TypeError as error:
    assert "float64" in str(error)
else:
    raise SystemExit("a Mac has no float64")
torch.set_default_dtype(torch.float32)
assert torch.ones(3, device="mps").sum().item() == 3
torch.set_default_dtype(torch.float64)
torch.ones(3, device="mps")  # raises
