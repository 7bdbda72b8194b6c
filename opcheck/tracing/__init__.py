"""Follows a program through PyTorch, and holds the private parts of PyTorch that this needs."""
