# source: torch/utils/checkpoint.py (2.13.0): recomputes with autocast's state; the state of mps' generator is not kept
# torch: 2.3 2.13
# expect: exit 0
import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
block = block.to("mps")
x = torch.rand(2, 4, device="mps", requires_grad=True)
block(x).sum().backward()
expected = x.grad.clone()
for kept in (True, False):
    x.grad = None
    checkpoint(block, x, use_reentrant=kept).sum().backward()
    torch.testing.assert_close(x.grad, expected)
x.grad = None
checkpoint_sequential(block, 2, x, use_reentrant=False).sum().backward()
torch.testing.assert_close(x.grad, expected)
