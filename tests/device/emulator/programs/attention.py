# source: aten/src/ATen/native/transformers/attention.cpp (2.13.0); torch/nn/modules/activation.py: no fast path on mps
# torch: 2.3 2.13 2.15
# expect: exit 0
import torch
from torch.nn import functional as F

torch.manual_seed(0)
q = torch.randn(2, 4, 6, 8)
mask = torch.ones(6, 6).tril().bool()
expected = F.scaled_dot_product_attention(q, q, q, is_causal=True)
m = q.to("mps")
torch.testing.assert_close(F.scaled_dot_product_attention(m, m, m, is_causal=True).cpu(), expected)
out = F.scaled_dot_product_attention(m, m, m, attn_mask=mask.to("mps"))
torch.testing.assert_close(out.cpu(), expected)
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
x = torch.randn(2, 6, 8)
pad = torch.zeros(2, 6, dtype=torch.bool)
pad[1, 4:] = True
encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
with torch.no_grad():
    a = encoder(x, src_key_padding_mask=pad)[0]
    b = encoder.to("mps")(x.to("mps"), src_key_padding_mask=pad.to("mps"))[0]
torch.testing.assert_close(a, b.cpu(), atol=1e-5, rtol=1e-4)
mha = torch.nn.MultiheadAttention(8, 2, batch_first=True).to("mps")
out, weights = mha(x.to("mps"), x.to("mps"), x.to("mps"), average_attn_weights=False)
assert weights.shape == (2, 2, 6, 6)
