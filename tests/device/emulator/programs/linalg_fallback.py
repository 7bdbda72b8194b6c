# source: aten/src/ATen/mps/MPSFallback.mm (2.13.0): linalg_svd runs on the CPU, with a warning
# expect: exit 0
# warns: The operator 'aten::linalg_svd' is not currently supported on the MPS backend and will fall back to run on the CPU.
import torch

a = torch.tensor([[4.0, 1.0], [1.0, 3.0]], device="mps")
u, s, v = torch.linalg.svd(a)
assert s.is_mps
torch.testing.assert_close(u @ torch.diag(s) @ v, a, atol=1e-5, rtol=1e-5)
torch.testing.assert_close(torch.linalg.inv(a) @ a, torch.eye(2, device="mps"), atol=1e-5, rtol=0)
torch.testing.assert_close(torch.linalg.cholesky(a) @ torch.linalg.cholesky(a).T, a)
assert torch.linalg.norm(a).is_mps
assert torch.linalg.solve(a, a).shape == (2, 2)
assert abs(torch.det(a).item() - 11) < 1e-4
