# source: torchvision/csrc/ops/mps/mps_kernels.h, nms_kernel.mm (0.28): nms has a kernel for MPS
# expect: exit 0
import torch
import torchvision

boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], device="mps")
scores = torch.tensor([0.9, 0.8, 0.7], device="mps")
kept = torchvision.ops.nms(boxes, scores, 0.5)
assert kept.is_mps
assert kept.tolist() == [0, 2]
labels = torch.tensor([0, 1, 0], device="mps")
assert sorted(torchvision.ops.batched_nms(boxes, scores, labels, 0.5).tolist()) == [0, 1, 2]
assert torchvision.ops.box_iou(boxes, boxes).diagonal().tolist() == [1.0, 1.0, 1.0]
pooled = torchvision.ops.roi_align(torch.rand(1, 2, 16, 16, device="mps"), [boxes[:2]], 4)
assert pooled.shape == (2, 2, 4, 4)
