"""The host side of PyTorch's Metal kernels: from an operator call to the launches of a release.

``pointwise_calls.yaml`` and the functions of the other modules have, by family, what PyTorch's host functions
(aten/src/ATen/native/mps) choose: the kernel's name, its buffers, the grid and the threadgroup.
"""
