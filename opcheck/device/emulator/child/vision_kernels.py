"""The operators of torchvision on the CPU, for a machine where its compiled part does not load.

The formulas are those of torchvision/csrc/ops/cpu (0.17 to 0.29). Only ``opcheck run`` needs them:
an audit has no values.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from opcheck.simulator.dispatch.operators.operator import gradients

Tensor = torch.Tensor

#: A Library unregisters its kernels when it is garbage-collected.
_kept: list[torch.library.Library] = []


def install() -> None:
    """Register the kernels for the CPU; the operators must be declared and have none yet."""
    if _kept:
        return
    library = torch.library.Library("torchvision", "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "CPU")  # type: ignore[no-untyped-call]
    _kept.append(library)


def is_installed() -> bool:
    """Return whether these kernels replace the compiled part."""
    return bool(_kept)


def _nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    boxes = boxes.float() if boxes.dtype in (torch.float16, torch.bfloat16) else boxes
    x1, y1, x2, y2 = boxes.unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    suppressed = torch.zeros(len(boxes), dtype=torch.bool)
    kept = []
    for index in scores.argsort(descending=True, stable=True).tolist():
        if suppressed[index]:
            continue
        kept.append(index)
        width = (torch.minimum(x2, x2[index]) - torch.maximum(x1, x1[index])).clamp(min=0)
        height = (torch.minimum(y2, y2[index]) - torch.maximum(y1, y1[index])).clamp(min=0)
        shared = width * height
        suppressed |= shared / (areas + areas[index] - shared) > threshold
    return torch.tensor(kept, dtype=torch.int64)


def _bilinear(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Sample ``image`` [C, H, W] at the rows ``y`` and columns ``x``: [C, len(y), len(x)]."""
    height, width = image.shape[-2:]
    inside = ((y >= -1) & (y <= height))[:, None] & ((x >= -1) & (x <= width))[None, :]
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.floor().long(), x.floor().long()
    low, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    dy, dx = (y - top)[:, None], (x - left)[None, :]
    values = (
        image[:, top][:, :, left] * (1 - dy) * (1 - dx)
        + image[:, top][:, :, right] * (1 - dy) * dx
        + image[:, low][:, :, left] * dy * (1 - dx)
        + image[:, low][:, :, right] * dy * dx
    )
    return values * inside


def _bins(start: float, size: float, count: int, samples: int, like: Tensor) -> Tensor:
    """The centres of ``samples`` pieces of each of ``count`` bins: [count * samples]."""
    bins = torch.arange(count, dtype=like.dtype)[:, None]
    pieces = torch.arange(samples, dtype=like.dtype)[None, :] + 0.5
    return (start + (bins + pieces / samples) * size / count).reshape(-1)


def _roi_align(image: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
    offset = 0.5 if aligned else 0.0
    regions = []
    for batch, *roi in rois.tolist():
        x1, y1, x2, y2 = (edge * scale - offset for edge in roi)
        rows, columns = y2 - y1, x2 - x1
        if not aligned:
            rows, columns = max(rows, 1.0), max(columns, 1.0)
        down = ratio if ratio > 0 else math.ceil(rows / height)
        across = ratio if ratio > 0 else math.ceil(columns / width)
        if down <= 0 or across <= 0:
            regions.append(image.new_zeros(image.shape[1], height, width))
            continue
        y = _bins(y1, rows, height, down, image)
        x = _bins(x1, columns, width, across, image)
        values = _bilinear(image[int(batch)], y, x)
        # The means of the bins of a region.
        regions.append(values.reshape(-1, height, down, width, across).mean((2, 4)))
    return _stack(regions, image, (image.shape[1], height, width))


def _stack(regions: list[Tensor], image: Tensor, shape: tuple[int, ...]) -> Tensor:
    # Without regions, the result still depends on the image, so that it has a gradient.
    return torch.stack(regions) if regions else image.sum() * image.new_zeros(0, *shape)


def _roi_pool(image: Tensor, rois: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    channels, rows, columns = image.shape[1:]
    pooled = image.new_zeros(len(rois), channels, height, width)
    places = torch.full(pooled.shape, -1, dtype=torch.int32)
    for number, (batch, *edges) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (_round(edge * scale) for edge in edges)
        down = _spans(y1, max(y2 - y1 + 1, 1), height, rows)
        across = _spans(x1, max(x2 - x1 + 1, 1), width, columns)
        for i, (top, low) in enumerate(down):
            for j, (left, right) in enumerate(across):
                if low <= top or right <= left:
                    continue
                part = image[int(batch), :, top:low, left:right].reshape(channels, -1)
                values, index = part.max(1)
                pooled[number, :, i, j] = values
                row, column = index // (right - left) + top, index % (right - left) + left
                places[number, :, i, j] = (row * columns + column).int()
    return pooled, places


def _round(value: float) -> int:
    """As C rounds: halves away from zero."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _spans(start: int, size: int, count: int, most: int) -> list[tuple[int, int]]:
    step = size / count
    return [
        (min(max(math.floor(n * step) + start, 0), most), min(max(math.ceil((n + 1) * step) + start, 0), most))
        for n in range(count)
    ]


def _own_channels(height: int, width: int, channels: int) -> Tensor:
    """Which channel a bin reads: [channels of the result, height, width]."""
    return torch.arange(channels, dtype=torch.int32).reshape(-1, height, width)


def _ps_roi_align(
    image: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int
) -> tuple[Tensor, Tensor]:
    own = _own_channels(height, width, image.shape[1])
    every = _roi_align(image, rois, scale, height, width, ratio, True)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)[None, :]
    return every[:, own.long(), rows, columns], own.expand(len(rois), *own.shape).contiguous()


def _ps_roi_pool(image: Tensor, rois: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    own = _own_channels(height, width, image.shape[1])
    rows, columns = image.shape[2:]
    regions = []
    for batch, *edges in rois.tolist():
        x1, y1, x2, y2 = (_round(edge * scale) for edge in edges)
        down = _spans(y1, max(y2 - y1, 1), height, rows)
        across = _spans(x1, max(x2 - x1, 1), width, columns)
        bins = [
            _mean(image[int(batch), own[:, i, j].long(), top:low, left:right])
            for i, (top, low) in enumerate(down)
            for j, (left, right) in enumerate(across)
        ]
        regions.append(torch.stack(bins, 1).reshape(-1, height, width))
    return _stack(regions, image, tuple(own.shape)), own.expand(len(rois), *own.shape).contiguous()


def _mean(part: Tensor) -> Tensor:
    return part.mean((1, 2)) if part.numel() else part.new_zeros(len(part))


def _deform_conv2d(image: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *settings: Any) -> Tensor:
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask = settings
    batch, channels = image.shape[:2]
    kernel_h, kernel_w = weight.shape[2:]
    out_h, out_w = offset.shape[2:]
    shifts = offset.reshape(batch, offset_groups, kernel_h * kernel_w, 2, out_h, out_w)
    rows = torch.arange(out_h, dtype=image.dtype)[:, None] * stride_h - pad_h
    columns = torch.arange(out_w, dtype=image.dtype)[None, :] * stride_w - pad_w
    parts = image.reshape(batch, offset_groups, -1, *image.shape[2:])
    sampled = []
    for number in range(kernel_h * kernel_w):
        i, j = divmod(number, kernel_w)
        y = rows + i * dilation_h + shifts[:, :, number, 0]
        values = _sample(parts, y, columns + j * dilation_w + shifts[:, :, number, 1])
        if use_mask:
            grouped_mask = mask.reshape(batch, offset_groups, kernel_h * kernel_w, out_h, out_w)
            values = values * grouped_mask[:, :, None, number]
        sampled.append(values.reshape(batch, channels, out_h, out_w))
    patches = torch.stack(sampled, 2).reshape(batch, groups, -1, out_h * out_w)
    filters = weight.reshape(groups, weight.shape[0] // groups, -1)
    return torch.einsum("gok,bgkp->bgop", filters, patches).reshape(batch, -1, out_h, out_w) + bias[:, None, None]


def _sample(parts: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bilinear samples of ``parts`` [B, G, C, H, W] at [B, G, h, w]; zero outside."""
    batch, groups, channels, height, width = parts.shape
    flat = parts.reshape(batch, groups, channels, -1)
    top, left = y.floor(), x.floor()
    total = parts.new_zeros(batch, groups, channels, *y.shape[2:])
    for row, weight_y in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, weight_x in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            index = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            index = index.reshape(batch, groups, 1, -1).expand(-1, -1, channels, -1)
            values = flat.gather(3, index).reshape(total.shape)
            total = total + values * (weight_y * weight_x * inside)[:, :, None]
    return total


# -- backward kernels: linear, or by autograd ----------------------------------------------------


def _image_gradient(forward: Callable[..., Any], left_out: int, after: int) -> Callable[..., Tensor]:
    """Return the gradient of the image that is the first argument of ``forward``, by its first result.

    Args:
        forward: a kernel.
        left_out: the place of an argument that ``forward`` does not take, behind the gradient; 0: there is none.
        after: how many of its arguments follow the four sizes of the image.
    """

    def backward(grad: Tensor, *arguments: Any) -> Tensor:
        end = len(arguments) - after
        shape, rest = arguments[end - 4 : end], [*arguments[: end - 4], *arguments[end:]]
        if left_out:
            del rest[left_out]
        image = grad.new_zeros(shape)
        (gradient,) = gradients(lambda image: forward(image, *rest), (image,), (True,), grad)
        return image if gradient is None else gradient

    return backward


def _roi_pool_backward(grad: Tensor, rois: Tensor, places: Tensor, *rest: Any) -> Tensor:
    _scale, _height, _width, *shape = rest
    batch, channels, rows, columns = shape
    result = grad.new_zeros(batch, channels, rows * columns)
    for number, image in enumerate(rois[:, 0].long().tolist()):
        index = places[number].reshape(channels, -1).long()
        shares = grad[number].reshape(channels, -1) * (index >= 0)
        result[image].scatter_add_(1, index.clamp(min=0), shares)
    return result.reshape(shape)


def _deform_conv2d_backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    tensors, rest = arguments[:5], arguments[5:]
    computed = gradients(lambda *leaves: _deform_conv2d(*leaves, *rest), tensors, (True,) * 5, grad)
    return tuple(
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(tensors, computed, strict=True)
    )


_KERNELS: dict[str, Callable[..., Any]] = {
    "nms": _nms,
    "roi_align": _roi_align,
    "_roi_align_backward": _image_gradient(_roi_align, 0, 2),
    "roi_pool": _roi_pool,
    "_roi_pool_backward": _roi_pool_backward,
    "ps_roi_align": _ps_roi_align,
    "_ps_roi_align_backward": _image_gradient(_ps_roi_align, 1, 0),
    "ps_roi_pool": _ps_roi_pool,
    "_ps_roi_pool_backward": _image_gradient(_ps_roi_pool, 1, 0),
    "deform_conv2d": _deform_conv2d,
    "_deform_conv2d_backward": _deform_conv2d_backward,
}
