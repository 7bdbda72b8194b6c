# source: torch/amp/grad_scaler.py (2.3.0), unscale_: FP32 division can be imprecise, so double().reciprocal()
# torch: 2.3
# macos: 14
# expect: exit 1, raises TypeError "Cannot convert a MPS Tensor to float64 dtype" at line 11
import torch

model = torch.nn.Linear(4, 1).to("mps")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("mps", init_scale=8.0)
scaler.scale(model(torch.rand(8, 4, device="mps")).mean()).backward()
scaler.step(optimizer)  # raises
