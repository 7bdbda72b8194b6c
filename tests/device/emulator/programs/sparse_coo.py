# source: aten/src/ATen/native/native_functions.yaml (2.9.0 and newer): SparseMPS has kernels for COO
# torch: 2.13 2.15
# expect: exit 0
import torch

i = torch.tensor([[0, 1, 1], [2, 0, 2]])
v = torch.tensor([3.0, 4.0, 5.0])
s = torch.sparse_coo_tensor(i, v, (2, 3), device="mps")
assert s.device.type == "mps"
assert s.is_sparse
assert s.layout is torch.sparse_coo
assert s._nnz() == 3
assert s.coalesce().values().is_mps
assert s.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
moved = torch.eye(3).to_sparse().to("mps")
assert moved.is_mps
assert moved.to_dense().sum().item() == 3
