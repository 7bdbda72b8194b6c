# source: op list of torch 2.13's wheel: _linalg_eigh has no kernel for MPS; https://github.com/pytorch/pytorch/issues/77764
# torch: 2.3
# macos: 14
# expect: exit 1, raises NotImplementedError "The operator 'aten::_linalg_eigh.eigenvalues' is not currently implemented for the MPS device." at line 9
import torch

a = torch.eye(3, device="mps")
assert (a @ a).trace().item() == 3
torch.linalg.eigh(a)  # raises
