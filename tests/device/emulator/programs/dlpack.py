# source: torch/utils/dlpack.py, torch/_tensor.py (2.13.0), __dlpack_device__: kDLMetal is 8
# expect: exit 0
import torch

x = torch.arange(3.0)
y = torch.from_dlpack(x)
assert y.data_ptr() == x.data_ptr()
m = x.to("mps")
assert m.__dlpack_device__()[0] == 8
z = torch.from_dlpack(m)
assert z.device.type == "mps"
assert z.tolist() == [0, 1, 2]
