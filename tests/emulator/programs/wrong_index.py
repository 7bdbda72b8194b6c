# source: c10/mps (2.13.0): there is one device; aten/src/ATen/mps/EmptyTensor.cpp
# expect: exit 0
import torch

x = torch.ones(1, device="mps:0")
assert x.to("mps:0") is x
try:
    torch.ones(2, device="mps:1")
except (RuntimeError, ValueError):
    pass
else:
    raise SystemExit("there is no second device")
