# slow: 1
# source: https://github.com/huggingface/transformers/issues/24515; aten/src/ATen/native/mps/operations/Indexing.mm (2.13.0)
# expect: exit 1, raises RuntimeError "Placeholder storage has not been allocated on MPS device!" at line 9
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=20, n_positions=32)
model = GPT2LMHeadModel(config).to("mps").eval()
model(torch.tensor([[2, 3, 4]]))  # raises
