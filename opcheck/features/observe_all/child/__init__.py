"""What runs PyTorch's operator database, in child processes, where torch is imported."""
