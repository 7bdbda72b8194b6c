"""What a device really does with PyTorch's operator database: evidence for the op lists.  Imports no torch."""
