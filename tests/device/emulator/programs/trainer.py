# slow: 1
# source: transformers/training_args.py (5.23), _setup_devices
# expect: exit 0
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        ids = torch.arange(6) + i
        return {"input_ids": ids, "labels": ids}


config = GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=20, n_positions=16)
arguments = TrainingArguments(
    "out", max_steps=2, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, save_steps=2
)
assert arguments.device == torch.device("mps")
assert arguments.n_gpu <= 1
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Data())
result = trainer.train()
assert trainer.model.device.type == "mps"
assert result.global_step == 2
assert trainer.evaluate(Data())["eval_loss"] > 0
again = GPT2LMHeadModel.from_pretrained("out/checkpoint-2", device_map="mps")
assert again.device.type == "mps"
