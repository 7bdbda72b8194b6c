# source: lightning/pytorch/trainer/connectors/checkpoint_connector.py (2.6): a state that was saved on mps
# needs: lightning
# expect: exit 0
import warnings

import lightning as L
import torch

warnings.simplefilter("ignore")


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


data = torch.utils.data.DataLoader(torch.rand(8, 4), batch_size=4)
quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False)
trainer = L.Trainer(accelerator="mps", devices=1, precision="16-mixed", max_epochs=1, **quiet)
trainer.fit(Model(), data)
trainer.save_checkpoint("model.ckpt")
again = L.Trainer(accelerator="mps", devices=1, max_epochs=2, **quiet)
again.fit(Model(), data, ckpt_path="model.ckpt", weights_only=False)
assert again.optimizers[0].state[again.model.layer.weight]["step"].item() >= 1
assert again.model.layer.weight.device.type == "cpu"  # Lightning moves it back (Strategy.teardown)
assert again.current_epoch == 2
