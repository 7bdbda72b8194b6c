# source: torch/random.py, torch/mps/__init__.py (2.13.0): manual_seed seeds the generator of mps, too
# torch: 2.5 2.13
# expect: exit 0
import torch

torch.manual_seed(7)
a = torch.rand(4, device="mps")
torch.manual_seed(7)
assert torch.equal(a, torch.rand(4, device="mps"))
torch.mps.manual_seed(3)
b = torch.randn(4, device="mps")
torch.mps.manual_seed(3)
assert torch.equal(b, torch.randn(4, device="mps"))
state = torch.mps.get_rng_state()
assert state.dtype is torch.uint8
assert state.device.type == "cpu"
c = torch.rand(2, device="mps")
torch.mps.set_rng_state(state)
assert torch.equal(c, torch.rand(2, device="mps"))
g = torch.Generator(device="mps").manual_seed(5)
assert g.device.type == "mps"
assert g.initial_seed() == 5
d = torch.randn(3, device="mps", generator=g)
assert torch.equal(d, torch.randn(3, device="mps", generator=g.manual_seed(5)))
saved = g.get_state()
e = torch.randperm(6, device="mps", generator=g)
g.set_state(saved)
assert torch.equal(e, torch.randperm(6, device="mps", generator=g))
assert torch.multinomial(torch.ones(3, device="mps"), 2, generator=g).is_mps
assert torch.empty(3, device="mps").normal_(generator=g).is_mps
