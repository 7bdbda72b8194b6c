# source: torch/optim/lbfgs.py (2.13.0)
# torch: 2.3 2.13
# expect: exit 0
import torch

w = torch.tensor([2.0, -3.0], device="mps", requires_grad=True)
optimizer = torch.optim.LBFGS([w], max_iter=20, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = ((w - torch.tensor([1.0, 1.0], device="mps")) ** 2).sum()
    loss.backward()
    return loss


loss = optimizer.step(closure)
assert loss.is_mps
torch.testing.assert_close(w.detach().cpu(), torch.ones(2), atol=1e-4, rtol=0)
