# source: torch/csrc/autograd/python_variable.cpp and ATen/native/TypeProperties.cpp (2.13.0): type_as is to(options of other)
# torch: 2.3 2.13
# expect: exit 0
import torch

x = torch.arange(3).type_as(torch.ones(1, device="mps"))
assert x.device.type == "mps"
assert x.dtype is torch.float32
y = torch.ones(2, device="mps").type_as(torch.ones(1, dtype=torch.int64))
assert y.device.type == "cpu"
assert y.dtype is torch.int64
z = torch.ones(2, requires_grad=True)
(z.type_as(x) * 2).sum().backward()
assert z.grad.tolist() == [2.0, 2.0]
assert z.grad.device.type == "cpu"
