# source: torch/optim/swa_utils.py (2.13.0)
# expect: exit 0
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("mps")
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
swa = AveragedModel(model)
with torch.no_grad():
    for p in model.parameters():
        p.add_(1)
ema.update_parameters(model)
ema.update_parameters(model)
swa.update_parameters(model)
assert ema.module[0].weight.is_mps
assert swa.n_averaged.device.type == "cpu"  # a buffer that was made without a device
assert swa.n_averaged.item() == 1
update_bn([torch.rand(4, 3) for _ in range(2)], swa, device=torch.device("mps"))
