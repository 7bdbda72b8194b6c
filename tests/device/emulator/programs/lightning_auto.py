# source: lightning/pytorch/accelerators/mps.py (2.6): is_available asks torch.backends.mps and platform.processor()
# needs: lightning
# expect: exit 0
import logging
import warnings

import lightning as L
import torch

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        assert self.device.type == batch[0].device.type == "mps"
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(8, 4)), batch_size=4)
for name in ("mps", "auto"):
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer = L.Trainer(accelerator=name, devices=1, max_epochs=1, enable_model_summary=False, **quiet)
    trainer.fit(Model(), data)
    assert type(trainer.accelerator).__name__ == "MPSAccelerator"
