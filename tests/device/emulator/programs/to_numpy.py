# source: torch/csrc/utils/tensor_numpy.cpp (2.13.0), tensor_to_numpy
# torch: 2.3 2.13
# expect: exit 1, raises TypeError "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first." at line 15
import numpy as np
import torch

x = torch.arange(4.0, device="mps")
assert x.cpu().numpy().tolist() == [0, 1, 2, 3]
assert x.numpy(force=True).sum() == 6
assert np.asarray(x.tolist()).shape == (4,)
assert [v.item() for v in x] == [0, 1, 2, 3]
assert max(x).item() == 3
y = x.clone().requires_grad_()
assert y.detach().cpu().numpy().max() == 3
np.array(x)  # raises
