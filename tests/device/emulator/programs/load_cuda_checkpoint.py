# source: torch/serialization.py (2.13.0), _validate_device: https://github.com/pytorch/pytorch/issues/16797
# expect: exit 1, raises RuntimeError "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False." at line 16
import io

import torch
from torch import serialization

file = io.BytesIO()
tag = serialization.location_tag
serialization.location_tag = lambda storage: "cuda:0"
torch.save({"w": torch.ones(2)}, file)
serialization.location_tag = tag
file.seek(0)
assert torch.load(file, map_location="mps")["w"].is_mps
file.seek(0)
torch.load(file)  # raises
