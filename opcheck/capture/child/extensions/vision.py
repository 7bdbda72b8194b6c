"""Imports torchvision where its compiled part cannot load, and declares its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from opcheck.capture.child.extensions import stub as extension_stub
from opcheck.capture.child.extensions import vision_autograd

if TYPE_CHECKING:
    from pathlib import Path

_RECTANGLE = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_WINDOW = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
_RATIO = "int sampling_ratio"
_SAMPLED = f"{_RATIO}, bool aligned"
_GRAD = "Tensor grad, Tensor rois"
_MAPPED = "Tensor channel_mapping"
_QUANTIZED = (
    "Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    "int rois_zero_point"
)
_FIVE = "(Tensor, Tensor, Tensor, Tensor, Tensor)"
_DEFORM = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"

#: torchvision/csrc/ops (0.28): what its compiled part declares.  Its Python adds the meta kernels.
SCHEMAS = (
    "_cuda_version() -> int",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_RECTANGLE}, {_SAMPLED}) -> Tensor",
    f"_roi_align_backward({_GRAD}, {_RECTANGLE}, {_IMAGE}, {_SAMPLED}) -> Tensor",
    f"qroi_align({_QUANTIZED}, {_RECTANGLE}, {_SAMPLED}) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_RECTANGLE}) -> (Tensor, Tensor)",
    f"_roi_pool_backward({_GRAD}, Tensor argmax, {_RECTANGLE}, {_IMAGE}) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_RECTANGLE}, {_RATIO}) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward({_GRAD}, {_MAPPED}, {_RECTANGLE}, {_RATIO}, {_IMAGE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_RECTANGLE}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward({_GRAD}, {_MAPPED}, {_RECTANGLE}, {_IMAGE}) -> Tensor",
    f"deform_conv2d({_DEFORM}, {_WINDOW}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}, {_WINDOW}) -> {_FIVE}",
)

#: A Library that is garbage-collected takes its declarations back.
_kept: list[torch.library.Library] = []


def prepare_torchvision() -> bool:
    """Let ``import torchvision`` work although its compiled part cannot load; call it first.

    A torchvision built for CUDA beside a torch built for the CPU, say, dies at import with
    ``operator torchvision::nms does not exist``.  The schemas are declared here instead, and its
    Python then registers its own meta kernels.  Where the compiled part loads, nothing is done.

    Returns:
        Whether the declarations stand in for the compiled part.
    """
    if _kept:
        return True
    extension = _extension()
    if (
        extension is None
        or hasattr(torch.ops.torchvision, "nms")
        or extension_stub.loads(extension)
    ):
        return False
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    # From 0.28 on torchvision's own Python registers the derivatives, and registering twice warns.
    if not (extension.parent / "_autograd_registrations.py").is_file():
        vision_autograd.register(library)
    _kept.append(library)
    extension_stub.skip_loading([extension])
    return True


def _extension() -> Path | None:
    """Return the compiled part of the installed torchvision; None where there is none."""
    package = extension_stub.folder("torchvision")
    if package is None:
        return None
    # A glob that is left in the middle keeps its folder open.
    paths = [path for pattern in ("_C*.so", "_C*.pyd") for path in package.glob(pattern)]
    return paths[0] if paths else None
