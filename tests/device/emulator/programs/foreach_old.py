# source: torch/optim/adam.py (2.3.0), _multi_tensor_adam; native_functions.yaml: _foreach kernels for the CPU and CUDA
# torch: 2.3
# macos: 14
# expect: exit 1, raises NotImplementedError "The operator 'aten::_foreach_" at line 11
import torch

model = torch.nn.Linear(3, 2).to("mps")
model(torch.rand(2, 3, device="mps")).sum().backward()
torch.optim.AdamW(model.parameters()).step()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
torch.optim.AdamW(model.parameters(), foreach=True).step()  # raises
