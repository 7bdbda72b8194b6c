"""Runs PyTorch's operator database on a device: evidence for the op lists.  Imports no torch."""
