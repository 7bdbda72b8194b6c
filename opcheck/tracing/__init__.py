"""Follows a program through PyTorch, and has the private parts of PyTorch that this needs."""
