# source: torch/nn/utils/rnn.py, aten/src/ATen/native/PackedSequence.cpp (2.13.0): "'lengths' argument should be a 1D CPU int64 tensor"
# torch: 2.3 2.13
# expect: exit 1, raises RuntimeError "'lengths' argument should be a 1D CPU int64 tensor, but got 1D mps:0 Long tensor" at line 10
import torch
from torch.nn.utils.rnn import pack_padded_sequence

batch = torch.rand(4, 2, 3, device="mps")
lengths = torch.tensor([4, 2], device="mps")
pack_padded_sequence(batch, lengths.cpu())
pack_padded_sequence(batch, lengths)  # raises
