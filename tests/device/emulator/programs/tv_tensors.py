# source: torchvision/tv_tensors/_tv_tensor.py (0.28): operations unwrap, moves keep the class
# expect: exit 0
import torch
from torchvision import tv_tensors

image = tv_tensors.Image(torch.rand(3, 8, 8))
moved = image.to("mps")
assert type(moved) is tv_tensors.Image
assert moved.device.type == "mps"
assert type(moved + 1) is torch.Tensor
boxes = tv_tensors.BoundingBoxes(torch.tensor([[0.0, 0, 2, 2]]), format="XYXY", canvas_size=(8, 8))
boxes = boxes.to("mps")
assert type(boxes) is tv_tensors.BoundingBoxes
assert boxes.canvas_size == (8, 8)
assert tv_tensors.wrap(boxes * 2, like=boxes).canvas_size == (8, 8)
