# source: torch/_tensor_str.py (2.13.0): a tensor of mps is printed by way of the CPU
# torch: 2.3 2.13
# expect: exit 0
import torch

x = torch.tensor([[1.5, 2.0], [float("nan"), float("inf")]], device="mps")
assert str(x) == "tensor([[1.5000, 2.0000],\n        [   nan,    inf]], device='mps:0')"
assert repr(torch.tensor(3, device="mps")) == "tensor(3, device='mps:0')"
assert f"{torch.tensor(0.123456, device='mps'):.3f}" == "0.123"
assert f"{x[0]}" == "tensor([1.5000, 2.0000], device='mps:0')"
assert "device='mps:0', dtype=torch.float16" in str(x.half())
y = torch.ones(1, device="mps", requires_grad=True)
assert str(y) == "tensor([1.], device='mps:0', requires_grad=True)"
assert "grad_fn=<MulBackward0>" in str(y * 2)
assert str(torch.empty(0, device="mps")) == "tensor([], device='mps:0')"
torch.set_printoptions(precision=2, sci_mode=False)
assert str(x[0]) == "tensor([1.50, 2.00], device='mps:0')"
assert str(torch.nn.Linear(2, 1).to("mps")) == "Linear(in_features=2, out_features=1, bias=True)"
