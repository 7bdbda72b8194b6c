# source: torch/nested/_internal/ops.py (2.13.0) and the op list of 2.13: _jagged_to_padded_dense_forward has no MPS kernel
# expect: exit 1, raises NotImplementedError "The operator 'aten::_jagged_to_padded_dense_forward' is not currently implemented for the MPS device." at line 11
import torch

parts = [torch.ones(2, 3, device="mps"), torch.ones(4, 3, device="mps")]
x = torch.nested.nested_tensor(parts, layout=torch.jagged)
assert x.device.type == "mps"
assert x.shape[0] == 2
assert x.values().shape == (6, 3)
assert (x * 2).values().sum().item() == 36
x.to_padded_tensor(0.0)  # raises
