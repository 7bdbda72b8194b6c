# source: torch/_tensor.py (2.13.0), __array_priority__ and __array__
# expect: exit 1, raises TypeError "can't convert mps:0 device type tensor to numpy." at line 14
import numpy as np
import torch

x = torch.ones(3, device="mps")
assert (np.float32(2) * x).is_mps
assert (x * np.int64(3)).tolist() == [3, 3, 3]
assert float(x[0]) == 1.0
assert int(x.sum()) == 3
assert np.mean(x.cpu().numpy()) == 1
assert x[np.int64(1)].item() == 1
assert x[np.array([0, 2])].shape == (2,)
np.sqrt(x)  # raises
