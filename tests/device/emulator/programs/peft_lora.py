# source: peft/tuners/lora (0.21): adapters are made on the device of their layer
# needs: peft
# expect: exit 0
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=20, n_positions=16)
model = GPT2LMHeadModel(config).to("mps")
model = get_peft_model(model, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
adapters = [p for n, p in model.named_parameters() if "lora_" in n]
assert {p.device.type for p in adapters} == {"mps"}
ids = torch.randint(0, 20, (2, 8), device="mps")
loss = model(input_ids=ids, labels=ids).loss
loss.backward()
assert all(p.grad is not None for p in adapters)
torch.optim.AdamW(adapters).step()
merged = model.merge_and_unload()
assert merged.eval()(ids).logits.is_mps
