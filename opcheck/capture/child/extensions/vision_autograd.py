"""The derivatives of torchvision's operators, where its compiled part cannot register them.

Source: torchvision/csrc/ops/autograd (0.28), each Function's forward and backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: operators of a feature map and boxes: what their backward is given of (out's gradient, boxes, second result,
#: settings, the map's shape)
_BOXES: dict[str, Callable[..., tuple[Any, ...]]] = {
    # The sampling ratio and the alignment come after the shape.
    "roi_align": lambda grad, rois, _, settings, shape: (
        *(grad, rois, *settings[:3], *shape),
        *settings[3:],
    ),
    "roi_pool": lambda grad, rois, argmax, settings, shape: (grad, rois, argmax, *settings, *shape),
    "ps_roi_align": lambda grad, rois, mapping, settings, shape: (
        *(grad, rois, mapping, *settings, *shape),
    ),
    "ps_roi_pool": lambda grad, rois, mapping, settings, shape: (
        *(grad, rois, mapping, *settings, *shape),
    ),
}

#: tensors among the arguments of deform_conv2d: input, weight, offset, mask, bias
_TENSORS = 5


def register(library: torch.library.Library) -> None:
    """Register the derivatives for the operators that ``library`` declared."""
    for name, arrange in _BOXES.items():
        _register(library, name, _keep_boxes, _backward_of_boxes(name, arrange))
    _register(library, "deform_conv2d", _keep_all, _deform_backward)


def _register(library: torch.library.Library, name: str, keep: Any, backward: Any) -> None:
    torch.library.register_autograd(
        f"torchvision::{name}", backward, setup_context=keep, lib=library
    )


def _keep_boxes(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, rois, *settings = inputs
    second = (output[1],) if isinstance(output, tuple) else ()
    ctx.save_for_backward(rois, *second)
    ctx.settings, ctx.shape = settings, features.shape


def _backward_of_boxes(name: str, arrange: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        rois, *second = ctx.saved_tensors
        operator = getattr(torch.ops.torchvision, f"_{name}_backward")
        given = arrange(grad, rois, second[0] if second else None, ctx.settings, ctx.shape)
        return (operator(*given), None, *[None] * len(ctx.settings))

    return backward


def _keep_all(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.window = inputs[_TENSORS:]


def _deform_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    operator = torch.ops.torchvision._deform_conv2d_backward
    grads = operator(grad, *ctx.saved_tensors, *ctx.window)
    return (*grads, *[None] * len(ctx.window))
