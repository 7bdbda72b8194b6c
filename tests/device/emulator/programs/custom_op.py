# source: torch/_library/custom_ops.py (2.13.0): one body for all devices
# expect: exit 0
import torch


@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def setup(ctx, inputs, output):
    pass


twice.register_autograd(lambda ctx, g: g * 2, setup_context=setup)
x = torch.ones(3, device="mps", requires_grad=True)
y = twice(x)
assert y.is_mps
y.sum().backward()
assert x.grad.tolist() == [2, 2, 2]
