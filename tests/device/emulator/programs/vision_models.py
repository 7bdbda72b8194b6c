# slow: 1
# source: torchvision/models, timm (1.0): plain operators
# expect: exit 0
import timm.loss
import torch
import torchvision

x = torch.rand(1, 3, 32, 32, device="mps")
net = torchvision.models.resnet18(num_classes=4).to("mps")
net(torch.rand(2, 3, 32, 32, device="mps")).sum().backward()
assert net.conv1.weight.grad.is_mps
vit = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3).to("mps").eval()
with torch.no_grad():
    assert vit(x).shape == (1, 3)
ema = timm.utils.ModelEmaV3(vit)
ema.update(vit)
data = timm.data.mixup.Mixup(mixup_alpha=0.2, num_classes=3)
mixed, target = data(torch.rand(2, 3, 8, 8, device="mps"), torch.tensor([0, 1], device="mps"))
assert mixed.is_mps
assert timm.loss.SoftTargetCrossEntropy()(vit(torch.rand(2, 3, 32, 32, device="mps")), target.to("mps")).is_mps
