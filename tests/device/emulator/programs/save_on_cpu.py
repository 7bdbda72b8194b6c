# source: torch/autograd/graph.py (2.13.0), save_on_cpu(pin_memory=True) asks the accelerator for pinned memory
# expect: exit 0
import torch

x = torch.randn(4, 4, device="mps", requires_grad=True)
with torch.autograd.graph.save_on_cpu():
    y = (x.sin() * x).sum()
y.backward()
expected = x.detach().sin() + x.detach() * x.detach().cos()
torch.testing.assert_close(x.grad, expected)
assert x.grad.device == x.device
a = torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]
b = torch.autograd.grad(a.sum(), x)[0]
torch.testing.assert_close(b, 6 * x.detach())
