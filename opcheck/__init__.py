"""What a PyTorch model does on Apple's GPU, told from any machine."""

__version__ = "0.1.0"
