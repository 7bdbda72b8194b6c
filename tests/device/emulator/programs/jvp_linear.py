# source: torch/autograd/forward_ad.py (2.13.0)
# expect: exit 0
import torch
import torch.autograd.forward_ad as fwAD
from torch.func import jacfwd, jvp

w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="mps")
x = torch.ones(1, 2, device="mps")
out, tangent = jvp(lambda t: torch.nn.functional.linear(t, w), (x,), (x * 2,))
assert out.tolist() == [[3, 7]]
assert tangent.tolist() == [[6, 14]]
assert jacfwd(lambda t: torch.nn.functional.linear(t, w))(x[0]).tolist() == w.tolist()
with fwAD.dual_level():
    dual = fwAD.make_dual(x, x * 3)
    value, slope = fwAD.unpack_dual(dual.exp() + 1)
    torch.testing.assert_close(slope, 3 * x.exp())
    assert slope.is_mps
