# source: torch/nn/modules/transformer.py (2.13.0); no release has a kernel: https://github.com/pytorch/pytorch/issues/77764
# torch: 2.3 2.13
# expect: exit 1, raises NotImplementedError "The operator 'aten::_nested_tensor_from_mask_left_aligned' is not currently implemented for the MPS device." at line 17
import warnings

import torch

warnings.simplefilter("ignore")
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, 2).to("mps")
x = torch.randn(2, 6, 8, device="mps")
pad = torch.arange(6, device="mps") > torch.tensor([[5], [3]], device="mps")
assert encoder(x, src_key_padding_mask=pad).shape == x.shape
encoder.eval()
with torch.no_grad():
    encoder(x)
    encoder(x, src_key_padding_mask=pad)  # raises
