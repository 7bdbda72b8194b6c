# source: torch/optim/adam.py (2.13.0): capturable needs a device with graphs
# expect: exit 1, raises AssertionError "If capturable=True, params and state_steps must be on supported devices" at line 8
import torch

model = torch.nn.Linear(3, 2).to("mps")
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
model(torch.rand(2, 3, device="mps")).sum().backward()
optimizer.step()  # raises
