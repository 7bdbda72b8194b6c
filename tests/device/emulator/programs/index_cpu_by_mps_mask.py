# source: ATen/native/IndexingUtils.h (2.13.0), expandTensors; aten/src/ATen/native/TensorAdvancedIndexing.cpp
# expect: exit 1, raises RuntimeError "indices should be either on cpu or on the same device as the indexed tensor (cpu)" at line 13
import torch

scores = torch.rand(6)
keep = torch.tensor([1, 0, 1, 0, 1, 0], device="mps") > 0
try:
    scores[keep]
except RuntimeError as error:
    assert "(cpu)" in str(error)
else:
    raise SystemExit("a Mac refuses this")
scores[keep] = 0.0  # raises
