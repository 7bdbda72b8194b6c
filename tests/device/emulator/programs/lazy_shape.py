# source: torch/nn/parameter.py (2.13.0), UninitializedTensorMixin.shape
# expect: exit 1, raises RuntimeError "Can't access the shape of an uninitialized parameter or buffer." at line 6
import torch

layer = torch.nn.LazyLinear(3).to("mps")
print(layer.weight.shape)  # raises
