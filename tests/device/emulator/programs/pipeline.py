# slow: 1
# source: transformers/pipelines/base.py (5.23): device="mps" and the default device
# expect: exit 0
import torch
from transformers import BertConfig, BertForSequenceClassification, AutoModelForCausalLM, LlamaConfig

config = LlamaConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4, vocab_size=20)
config.num_key_value_heads = 2
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to("mps").eval()
ids = torch.randint(3, 20, (1, 4), device="mps")
out = model.generate(ids, max_new_tokens=2, do_sample=False, pad_token_id=0, eos_token_id=2)
assert out.device.type == "mps"
model.save_pretrained("llama")
again = AutoModelForCausalLM.from_pretrained("llama", device_map="auto")
assert again.device.type == "mps"
assert again.dtype is torch.bfloat16
bert = BertForSequenceClassification(
    BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
).to("mps")
loss = bert(torch.ones(1, 4, dtype=torch.int64, device="mps"), labels=torch.tensor([1]).to("mps")).loss
loss.backward()
assert bert.bert.embeddings.word_embeddings.weight.grad.is_mps
