"""Trains by Lightning on the accelerator that the first argument names, and prints which device that was."""

import sys

import lightning
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a batch."""
        return F.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters())


data = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=8)
trainer = lightning.Trainer(
    accelerator=sys.argv[1], max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(Model(), data)
print(type(trainer.accelerator).__name__, trainer.strategy.root_device)
