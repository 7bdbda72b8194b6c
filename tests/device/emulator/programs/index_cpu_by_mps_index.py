# source: ATen/TensorIndexing.h, aten/src/ATen/native/TensorAdvancedIndexing.cpp (2.13.0); https://github.com/pytorch/pytorch/issues/58868
# torch: 2.3 2.13
# expect: exit 1, raises RuntimeError "indices should be either on cpu or on the same device as the indexed tensor (cpu)" at line 10
import torch

labels = torch.arange(10)
best = torch.rand(4, 10, device="mps").argmax(dim=1)
picked = labels[best.cpu()]
assert picked.device.type == "cpu"
labels[best]  # raises
