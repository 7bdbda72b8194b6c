"""Tries torch.compile: its variants, and the Metal kernels that Inductor would run."""
