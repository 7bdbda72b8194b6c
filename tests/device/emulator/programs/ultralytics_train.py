# source: ultralytics/nn/modules, utils/loss.py (8.4)
# needs: ultralytics
# expect: exit 0
import torch
from ultralytics import YOLO

torch.manual_seed(0)
model = YOLO("yolov8n.yaml", verbose=False).model.to("mps")
model.args = __import__("types").SimpleNamespace(box=7.5, cls=0.5, dfl=1.5, epochs=1)
images = torch.rand(1, 3, 64, 64, device="mps")
batch = {
    "img": images,
    "batch_idx": torch.zeros(1, device="mps"),
    "cls": torch.ones(1, 1, device="mps"),
    "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4]], device="mps"),
}
loss, parts = model.train()(batch)
loss.sum().backward()
assert loss.device.type == "mps"
model.eval()
with torch.no_grad():
    out = model(images)[0]
assert out.is_mps
assert out.shape[:2] == (1, 84)
