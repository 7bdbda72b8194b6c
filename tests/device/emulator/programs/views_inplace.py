# source: aten/src/ATen/native/TensorShape.cpp (2.13.0): views share memory
# torch: 2.3 2.13
# expect: exit 0
import torch

x = torch.zeros(2, 3, device="mps")
view = x[0]
view += 1
assert x.sum().item() == 3
x.t()[1].fill_(5)
assert x[:, 1].tolist() == [5, 5]
x.view(-1)[::2] = -1
assert x.tolist() == [[-1, 5, -1], [0, -1, 0]]
assert x.transpose(0, 1).is_contiguous() is False
assert x.stride() == (3, 1)
assert x[1].storage_offset() == 3
assert x.data_ptr() != 0
assert x[0].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
assert x.untyped_storage().device.type == "mps"
assert x.element_size() * x.nelement() == x.nbytes == 24
y = x.expand(4, 2, 3).clone()
y.masked_fill_(y < 0, 0.0)
assert y.min().item() == 0
assert x._version > 0
a = torch.ones(3, device="mps", requires_grad=True)
try:
    a += 1
except RuntimeError as error:
    assert "leaf Variable" in str(error)
