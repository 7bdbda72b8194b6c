# source: kornia/augmentation (0.9): parameters are drawn on the device of the module
# needs: kornia
# expect: exit 0
import kornia
import torch

torch.manual_seed(0)
images = torch.rand(2, 3, 16, 16, device="mps")
augment = torch.nn.Sequential(
    kornia.augmentation.RandomHorizontalFlip(p=1.0),
    kornia.augmentation.RandomAffine(degrees=10.0, p=1.0),
    kornia.augmentation.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0),
)
out = augment(images)
assert out.shape == images.shape
assert out.is_mps
blurred = kornia.filters.gaussian_blur2d(images, (3, 3), (1.0, 1.0))
assert blurred.is_mps
assert kornia.color.rgb_to_grayscale(images).shape == (2, 1, 16, 16)
assert kornia.filters.sobel(images).shape == images.shape
assert kornia.losses.ssim_loss(images, images, 5).item() < 1e-4
