# source: https://github.com/pytorch/pytorch/issues/77764 (comments); aten/src/ATen/native/mps/operations/LossOps.mm (2.13.0), nllnd_loss_forward_impl
# expect: exit 0
import torch
from torch.nn import functional as F

logits = torch.randn(4, 5, device="mps", requires_grad=True)
labels = torch.tensor([0, 1, 2, 3], device="mps")
loss = F.cross_entropy(logits, labels, label_smoothing=0.1, ignore_index=2)
loss.backward()
assert logits.grad.is_mps
assert logits.grad[2].abs().sum().item() == 0
assert F.one_hot(labels, 5).sum().item() == 4
assert F.nll_loss(F.log_softmax(logits, -1), labels).dim() == 0
assert F.binary_cross_entropy_with_logits(logits[:, 0], (labels > 1).float()).item() > 0
assert F.kl_div(F.log_softmax(logits, -1), F.softmax(logits, -1), reduction="batchmean").item() < 1e-5
