# source: aten/src/ATen/mps/MPSFallback.mm (2.3.0): with PYTORCH_ENABLE_MPS_FALLBACK=1 it warns and runs on the CPU
# torch: 2.3
# macos: 14
# fallback: 1
# warns: The operator 'aten::_linalg_eigh.eigenvalues' is not currently supported on the MPS backend and will fall back to run on the CPU. This may have performance implications.
# expect: exit 0
import os

import torch

assert os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] == "1"
values, vectors = torch.linalg.eigh(torch.diag(torch.tensor([2.0, 1.0], device="mps")))
assert values.tolist() == [1.0, 2.0]
assert vectors.is_mps
