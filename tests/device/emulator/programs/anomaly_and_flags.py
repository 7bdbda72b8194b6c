# source: torch/autograd/anomaly_mode.py, torch/__init__.py (2.13.0)
# expect: exit 0
import torch

torch.set_float32_matmul_precision("high")
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
torch.use_deterministic_algorithms(False)
torch.cuda.manual_seed_all(0)
torch.cuda.empty_cache()
with torch.autograd.set_detect_anomaly(True):
    x = torch.ones(2, device="mps", requires_grad=True)
    (x * 2).sum().backward()
with torch.inference_mode():
    y = torch.ones(2, device="mps") + 1
assert not y.requires_grad
z = y.clone()
assert z.requires_grad is False
with torch.no_grad():
    assert not (x * 2).requires_grad
assert torch.is_grad_enabled()
assert torch.get_num_threads() >= 1
assert torch.cuda.device_count() == 0
assert not torch.distributed.is_initialized()
