# source: torch/nn/modules/module.py, torch/_tensor.py (2.13.0): hooks see tensors of mps
# expect: exit 0
import torch

seen = []
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)).to("mps")
model[0].register_forward_pre_hook(lambda m, a: seen.append(("pre", a[0].device.type)))
model[0].register_forward_hook(lambda m, a, out: out * 2)
model[2].register_full_backward_hook(lambda m, gi, go: seen.append(("back", go[0].is_mps)))
model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 0.5,))
x = torch.ones(1, 2, device="mps", requires_grad=True)
y = model(x)
y.register_hook(lambda g: seen.append(("grad", g.item())))
model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(("post", p.grad.is_mps)))
z = model[0](x)
z.retain_grad()
(y.sum() + z.sum()).backward()
assert z.grad.is_mps
assert ("pre", "mps") in seen
assert ("back", True) in seen
assert ("grad", 1.0) in seen
assert ("post", True) in seen
with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to("mps")):
    w = (x * x).sum()
x.grad = None
w.backward()
assert x.grad.tolist() == [[2.0, 2.0]]
