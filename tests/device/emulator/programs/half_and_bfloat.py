# source: aten/src/ATen/native/mps (2.13.0): float16 and bfloat16 have kernels from macOS 14 on
# torch: 2.9 2.15
# macos: 26
# expect: exit 0
import torch

model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.GELU(), torch.nn.GroupNorm(2, 4))
for dtype in (torch.float16, torch.bfloat16):
    model = model.to("mps", dtype)
    out = model(torch.rand(1, 1, 8, 8, device="mps", dtype=dtype))
    assert out.dtype is dtype
    assert model[0].weight.device.type == "mps"
    assert torch.isfinite(out).all().item()
assert torch.tensor(1.5, dtype=torch.bfloat16, device="mps").item() == 1.5
assert torch.finfo(torch.float16).max == 65504
