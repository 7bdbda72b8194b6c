# source: c10/core/Device.h, torch/csrc/autograd/python_variable.cpp (2.13.0): an mps tensor has the index 0
# torch: 2.3 2.13
# expect: exit 0
import torch

x = torch.ones(2, device="mps")
assert x.device == torch.device("mps:0") == torch.device("mps", 0)
assert x.device != torch.device("mps")
assert str(x.device) == "mps:0"
assert repr(x.device) == "device(type='mps', index=0)"
assert (x.device.type, x.device.index) == ("mps", 0)
assert x.is_mps
assert not x.is_cpu
assert not x.is_cuda
assert x.get_device() == 0
assert torch.ones(2).get_device() == -1
assert str(x) == "tensor([1., 1.], device='mps:0')"
assert x.cpu().device == x.to("cpu").device == torch.device("cpu")
assert x.to("mps") is x
assert x.to(torch.device("mps")) is x
assert x.to(x) is x
assert x.cpu().to(x.device).device == x.device
assert {x.device: 1}[torch.device("mps:0")] == 1
