# slow: 1
# source: diffusers/schedulers/scheduling_ddpm.py (0.42), add_noise
# expect: exit 0
import torch
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    block_out_channels=(8, 8),
    layers_per_block=1,
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).to("mps")
x = torch.rand(2, 1, 8, 8, device="mps")
noise = torch.randn_like(x)
scheduler = DDPMScheduler(10)
t = torch.randint(0, 10, (2,), device="mps")
noisy = scheduler.add_noise(x, noise, t)
torch.nn.functional.mse_loss(unet(noisy, t).sample, noise).backward()
ddim = DDIMScheduler(10)
ddim.set_timesteps(2, device="mps")
with torch.no_grad():
    for step in ddim.timesteps:
        x = ddim.step(unet(x, step).sample, step, x).prev_sample
assert x.is_mps
