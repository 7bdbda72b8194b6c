# source: op list of torch 2.13: quantized tensors have no MPS kernels; torch/ao/quantization
# expect: exit 1, raises NotImplementedError "The operator 'aten::quantize_per_tensor' is not currently implemented for the MPS device." at line 8
import torch

x = torch.rand(4, device="mps")
q = torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8)
assert q.int_repr().dtype is torch.int8
torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)  # raises
