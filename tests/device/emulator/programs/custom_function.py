# source: torch/autograd/function.py (2.13.0)
# torch: 2.3 2.13
# expect: exit 0
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        assert x.is_mps
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert x.device == grad.device == torch.device("mps:0")
        assert type(grad) is type(x)
        return grad * ctx.factor, None


x = torch.ones(3, device="mps", requires_grad=True)
y = Scale.apply(x, 4.0)
assert y.grad_fn.name() == "ScaleBackward"
y.sum().backward()
assert x.grad.tolist() == [4.0] * 3
assert torch.autograd.gradgradcheck is not None
