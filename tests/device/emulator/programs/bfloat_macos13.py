# source: aten/src/ATen/native/mps/OperationUtils.mm (2.3.0): "MPS BFloat16 is only supported on MacOS 14 or newer"
# torch: 2.3
# macos: 13
# expect: exit 1, raises TypeError "MPS BFloat16 is only supported on MacOS 14 or newer" at line 9
import torch

x = torch.ones(2, 2, device="mps", dtype=torch.float16)
assert (x + x).dtype is torch.float16
y = torch.ones(2, 2, dtype=torch.bfloat16).to("mps")  # raises
