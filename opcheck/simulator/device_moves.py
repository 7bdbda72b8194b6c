"""Copy tensors between the devices, with the gradients that flow back."""

from __future__ import annotations

from typing import Any

import torch

from opcheck.simulator.dispatch_context import current


class _Crossing(torch.autograd.Function):
    """A copy to another device, whose gradient is copied back; to C++ both devices are the same."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        return torch.ops.aten._to_copy.default(tensor, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del output
        ctx.options = inputs[1]
        ctx.origin = {"device": inputs[0].device, "dtype": inputs[0].dtype}

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return copied(grad, **ctx.origin), None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _options: None) -> torch.Tensor:
        return copied(tangent, **ctx.options)


def copied(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run ``_to_copy`` as the user's own call with a given device, so that the result is no temporary of C++."""
    device = options.get("device")
    crosses = device is not None and device.type != tensor.device.type
    on_mps = (device or tensor.device).type == "mps"
    with current().set(on_mps=on_mps):
        if crosses and tensor.requires_grad and torch.is_grad_enabled():
            moved: torch.Tensor = _Crossing.apply(tensor, options)
            return moved
        return torch.ops.aten._to_copy.default(tensor, **options)
