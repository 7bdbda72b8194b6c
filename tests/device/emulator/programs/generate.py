# slow: 1
# source: transformers/generation/utils.py (5.23)
# expect: exit 0
import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

set_seed(0)
config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=20, n_positions=32, bos_token_id=0, eos_token_id=1)
model = GPT2LMHeadModel(config).eval()
ids = torch.tensor([[2, 3, 4]])
expected = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=1)
moved = model.to("mps")
assert moved.device == torch.device("mps:0")
out = moved.generate(ids.to("mps"), max_new_tokens=4, do_sample=False, pad_token_id=1)
assert out.is_mps
assert out.tolist() == expected.tolist()
beams = moved.generate(ids.to("mps"), max_new_tokens=3, num_beams=2, pad_token_id=1)
assert beams.shape[0] == 1
sampled = moved.generate(ids.to("mps"), max_new_tokens=3, do_sample=True, top_k=5, top_p=0.9, pad_token_id=1)
assert sampled.shape[1] <= 6
