"""Estimate how much memory a run takes on MPS, which tensors occupy it, and which Macs have enough."""
