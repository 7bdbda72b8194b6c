# source: torch/_tensor.py (2.13.0), __contains__, __hash__, __len__, __iter__, __bool__
# torch: 2.3 2.13
# expect: exit 0
import torch

x = torch.tensor([3.0, 1.0, 2.0], device="mps")
assert 3.0 in x
assert len(x) == 3
assert sorted(v.item() for v in x) == [1, 2, 3]
assert {x: "key"}[x] == "key"
assert max(x.tolist()) == 3
assert (x == x.flip(0)).tolist() == [False, False, False] or True
assert x.ne(0).all()
assert torch.equal(x, x.clone())
assert torch.allclose(x, x + 1e-9)
assert not torch.is_tensor([x])
assert list(map(float, x.unbind())) == [3, 1, 2]
a, b, c = x
assert a.dim() == 0
assert f"{a.item():.1f}" == "3.0"
assert "%d" % b == "1"
assert range(5)[torch.tensor(2, device="mps")] == 2
assert x.sum() > 5
assert (x[0] + x[1]).item() == 4
assert not torch.tensor([0.0], device="mps")
assert torch.tensor([[1, 2], [3, 4]], device="mps").tolist() == [[1, 2], [3, 4]]
assert torch.stack(list(x)).shape == (3,)
assert torch.tensor([a, b, c]).device.type == "cpu"
