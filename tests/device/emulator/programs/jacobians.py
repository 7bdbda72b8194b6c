# source: torch/autograd/functional.py (2.13.0)
# expect: exit 0
import torch
from torch.autograd.functional import hessian, jacobian, vjp

x = torch.tensor([1.0, 2.0], device="mps")
assert jacobian(lambda t: t**2, x).tolist() == [[2, 0], [0, 4]]
assert hessian(lambda t: (t**3).sum(), x).tolist() == [[6, 0], [0, 12]]
assert vjp(lambda t: t.exp(), x, torch.ones(2, device="mps"))[1].is_mps
assert jacobian(lambda t: t**2, x, vectorize=True).is_mps
y = x.clone().requires_grad_()
g = torch.autograd.grad((y**2).sum(), y, create_graph=True)[0]
penalty = (g.norm() - 1) ** 2
penalty.backward()
assert y.grad.is_mps
with torch.autograd.graph.save_on_cpu():
    assert (y * y).sum().item() == 5
z = torch.ones(2, device="mps", requires_grad=True)
torch.autograd.backward([(z * 2).sum(), (z * 3).sum()])
assert z.grad.tolist() == [5, 5]
