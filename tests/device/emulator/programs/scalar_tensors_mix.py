# source: ATen/native/TensorIterator (2.13.0): a CPU tensor without dimensions mixes with any device
# expect: exit 0
import torch

x = torch.ones(3, device="mps")
assert (x * torch.tensor(2.0)).tolist() == [2, 2, 2]
assert (torch.tensor(2.0) + x).is_mps
assert torch.where(x > 0, x, torch.tensor(0.0)).is_mps
assert torch.clamp(x, max=torch.tensor(0.5)).tolist() == [0.5] * 3
x += torch.tensor(1.0)
assert x.tolist() == [2, 2, 2]
x[0] = torch.tensor(7.0)
assert x[0].item() == 7
x[1:] = torch.tensor([8.0, 9.0])
assert x.tolist() == [7, 8, 9]
cpu = torch.zeros(3)
cpu.copy_(x)
assert cpu.tolist() == [7, 8, 9]
cpu[0] = x[2]
assert cpu[0].item() == 9
