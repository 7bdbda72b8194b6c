# source: torchvision/transforms/v2 (0.28): functional on plain tensors
# expect: exit 0
import torch
from torchvision.transforms import v2

torch.manual_seed(0)
transform = v2.Compose(
    [
        v2.RandomResizedCrop(8, antialias=True),
        v2.RandomHorizontalFlip(1.0),
        v2.ColorJitter(0.2, 0.2),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.5] * 3),
    ]
)
batch = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8, device="mps")
out = transform(batch)
assert out.shape == (2, 3, 8, 8)
assert out.is_mps
assert out.dtype is torch.float32
assert -1 <= out.min().item() <= out.max().item() <= 1
