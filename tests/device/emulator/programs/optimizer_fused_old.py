# source: torch/utils/_foreach_utils.py (2.3.0): mps is not among the devices of fused optimizers
# torch: 2.3
# macos: 14
# expect: exit 1, raises RuntimeError "`fused=True` requires all the params to be floating point Tensors of supported devices: ['cuda', 'xpu', 'privateuseone']" at line 9
import torch

model = torch.nn.Linear(3, 2).to("mps")
model(torch.rand(1, 3, device="mps")).sum().backward()
torch.optim.AdamW(model.parameters(), fused=True).step()  # raises
