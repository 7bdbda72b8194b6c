# source: torchmetrics/metric.py (1.9): states follow the device; the inputs must be there, too
# needs: torchmetrics
# expect: exit 0
import torch
import torchmetrics

metric = torchmetrics.Accuracy(task="multiclass", num_classes=3).to("mps")
scores = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], device="mps")
metric.update(scores, torch.tensor([0, 1], device="mps"))
value = metric.compute()
assert value.device.type == "mps"
assert value.item() == 0.5
assert metric.device == torch.device("mps:0") or metric.device == torch.device("mps")
confusion = torchmetrics.ConfusionMatrix(task="multiclass", num_classes=3).to("mps")
total = confusion(scores, torch.tensor([0, 1], device="mps"))
assert total.sum().item() == 2
mean = torchmetrics.MeanSquaredError().to("mps")
mean(torch.ones(3, device="mps"), torch.zeros(3, device="mps"))
assert mean.compute().item() == 1.0
