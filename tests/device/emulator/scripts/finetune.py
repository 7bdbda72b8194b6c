"""Fine-tunes a small BERT with the Trainer of transformers, on generated sentences."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--attention", default="eager")
args = parser.parse_args()
set_seed(42)


class Sentences(Dataset):
    def __init__(self, length):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(0, 2, (length,), generator=generator)
        self.ids = torch.randint(5, 60, (length, 16), generator=generator)
        self.ids[:, 3] = 60 + self.labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[index]}


config = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,  # each device draws from its own stream
    attention_probs_dropout_prob=0.0,
    attn_implementation=args.attention,
)
with tempfile.TemporaryDirectory() as directory:
    arguments = TrainingArguments(
        output_dir=directory,
        use_cpu=args.cpu,
        num_train_epochs=2,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        weight_decay=0.01,
        warmup_steps=2,
        logging_steps=1,
        report_to=[],
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        disable_tqdm=True,
        dataloader_num_workers=0,
    )
    trainer = Trainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=Sentences(32),
        eval_dataset=Sentences(16),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )
    trainer.train()
    print("device", trainer.args.device)
    for entry in trainer.state.log_history:
        print({name: value for name, value in entry.items() if "loss" in name or "norm" in name or "accuracy" in name})
