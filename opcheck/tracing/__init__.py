"""What follows a program through PyTorch, and the private parts of PyTorch that this takes."""
