# source: aten/src/ATen/native/mps/operations/Linear.mm (2.13.0)
# torch: 2.9 2.13
# macos: 26
# expect: exit 1, raises RuntimeError "Tensor for argument input is on cpu but expected on mps" at line 8
import torch

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).to("mps")
model(torch.rand(2, 2, 2))  # raises
