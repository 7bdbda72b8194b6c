# source: aten/src/ATen/TensorIterator.cpp (2.13.0), compute_types: "Expected all tensors to be on the same device"
# expect: exit 1, raises RuntimeError "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!" at line 8
import torch

model = torch.nn.Linear(3, 2).to("mps")
out = model(torch.rand(4, 3, device="mps"))
torch.nn.functional.mse_loss(out, torch.zeros(4, 2, device="mps"))
out - torch.zeros(4, 2)  # raises
