# source: torch/amp/autocast_mode.py (2.13.0); aten/src/ATen/autocast_mode.cpp, AutocastMPS
# expect: exit 0
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Conv1d(1, 2, 1))
model = torch.nn.Sequential(model[0], model[1]).to("mps")
x = torch.rand(2, 4, device="mps")
with torch.autocast("mps"):
    assert torch.is_autocast_enabled("mps")
    # autocast_mode.cpp, is_any_autocast_enabled, does not ask for MPS.
    assert not torch._C._is_any_autocast_enabled()
    assert torch.get_autocast_dtype("mps") is torch.float16
    y = model[0](x)
    assert y.dtype is torch.float16
    assert (x @ x.T).dtype is torch.float16
    assert torch.nn.functional.softmax(y, -1).dtype is torch.float32
    with torch.autocast("mps", enabled=False):
        assert (x @ x.T).dtype is torch.float32
    assert model(x).dtype is torch.float32
assert not torch.is_autocast_enabled("mps")
with torch.autocast(device_type="mps", dtype=torch.bfloat16):
    assert (x @ x.T).dtype is torch.bfloat16
torch.nn.functional.mse_loss(y.float(), x).backward()
assert model[0].weight.grad.dtype is torch.float32
