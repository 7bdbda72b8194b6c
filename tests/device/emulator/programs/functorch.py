# source: torch/_functorch (2.13.0); aten/src/ATen/functorch: transforms ask for no device
# expect: exit 0
import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

x = torch.arange(1.0, 4.0, device="mps")
assert grad(lambda t: (t**3).sum())(x).tolist() == [3.0, 12.0, 27.0]
out, tangent = jvp(lambda t: t * 2 + 1, (x,), (torch.ones_like(x),))
assert out.tolist() == [3, 5, 7]
assert tangent.tolist() == [2, 2, 2]
assert tangent.is_mps
_, pull = vjp(torch.sin, x)
torch.testing.assert_close(pull(torch.ones_like(x))[0], x.cos())
assert jacrev(lambda t: t**2)(x).diagonal().tolist() == [2, 4, 6]
assert hessian(lambda t: (t**3).sum())(x).diagonal().tolist() == [6, 12, 18]
batch = torch.rand(5, 3, device="mps")
dots = vmap(torch.dot)(batch, batch)
torch.testing.assert_close(dots, (batch * batch).sum(1))
assert vmap(lambda t: t.sum(), randomness="same")(batch).device == batch.device
model = torch.nn.Linear(3, 2).to("mps")
weights = dict(model.named_parameters())
per_sample = vmap(grad(lambda w, s: functional_call(model, w, (s,)).pow(2).sum()), in_dims=(None, 0))(weights, batch)
assert per_sample["weight"].shape == (5, 2, 3)
assert per_sample["weight"].is_mps
