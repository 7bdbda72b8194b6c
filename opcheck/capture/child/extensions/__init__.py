"""torchvision and torchaudio where their compiled parts cannot load: their operators, declared in Python."""
