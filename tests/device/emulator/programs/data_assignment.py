# source: torch/csrc/autograd/variable.cpp (2.13.0), set_data: incompatible tensor types are refused
# expect: exit 0
import torch

w = torch.nn.Parameter(torch.zeros(2, 2))
w.data = torch.ones(2, 2, device="mps")
assert w.is_mps
assert w.requires_grad
(w * 3).sum().backward()
assert w.grad.is_mps
w.grad.zero_()
w.grad = None
with torch.no_grad():
    w.copy_(torch.full((2, 2), 5.0))
    w[0] = 1
    w.mul_(2)
assert w.tolist() == [[2, 2], [10, 10]]
w.data = w.data.cpu()
assert w.device.type == "cpu"
x = torch.arange(4.0, device="mps")
x.data = torch.ones(2, 3, device="mps")
assert x.shape == (2, 3)
x.set_(torch.ones(4, device="mps"))
assert x.shape == (4,)
assert x.resize_(2, 2).shape == (2, 2)
assert x.t_().shape == (2, 2)
assert x.unsqueeze_(0).shape == (1, 2, 2)
