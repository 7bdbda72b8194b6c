"""Imports torchvision and torchaudio where their compiled parts cannot load, and declares their operators.

``extensions.yaml`` has the schemas.  The derivatives of torchvision's operators are those of
torchvision/csrc/ops/autograd (0.28), each Function's forward and backward.
"""

import ctypes
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opcheck.capture.naming import package_folder
from opcheck.common.yaml_text import load_shipped

#: The libraries whose operators are declared.  A Library that is garbage-collected takes its declarations back.
_declared: dict[str, list[torch.library.Library]] = {}


# -- torchvision ------------------------------------------------------------------------------------------------------


def prepare_torchvision() -> bool:
    """Let ``import torchvision`` work although its compiled part cannot load; call it first.

    A torchvision built for CUDA next to a torch built for the CPU, say, dies at import with
    ``operator torchvision::nms does not exist``.  The schemas are declared here instead, and its
    Python then registers its own meta kernels.  Where the compiled part loads, nothing is done.

    Returns:
        Whether the declarations replace the compiled part.
    """
    if "torchvision" in _declared:
        return True
    package = package_folder("torchvision")
    # A glob that is left in the middle keeps its folder open.
    extensions = [*package.glob("_C*.so"), *package.glob("_C*.pyd")][:1]
    library = _declare("torchvision", extensions, "nms")
    if library is None:
        return False
    library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    # From 0.28 on torchvision's own Python registers the derivatives, and registering twice warns.
    if not (extensions[0].parent / "_autograd_registrations.py").is_file():
        derivatives: dict[str, tuple[Any, Any]] = {
            **{name: (_keep_boxes, _backward_of_boxes(name)) for name in _BOXES},
            "deform_conv2d": (_keep_all, _deform_backward),
        }
        for name, (keep, backward) in derivatives.items():
            torch.library.register_autograd(f"torchvision::{name}", backward, setup_context=keep, lib=library)
    return True


#: operators of a feature map and boxes
_BOXES = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
#: settings of roi_align that its backward takes behind the map's shape: the sampling ratio and the alignment
_AFTER_SHAPE = {"roi_align": 2}

#: tensors among the arguments of deform_conv2d: input, weight, offset, mask, bias
_TENSORS = 5


def _keep_boxes(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, rois, *settings = inputs
    second = (output[1],) if isinstance(output, tuple) else ()
    ctx.save_for_backward(rois, *second)
    ctx.settings, ctx.shape = settings, features.shape


def _backward_of_boxes(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        operator = getattr(torch.ops.torchvision, f"_{name}_backward")
        before = len(ctx.settings) - _AFTER_SHAPE.get(name, 0)
        settings = (*ctx.settings[:before], *ctx.shape, *ctx.settings[before:])
        return (operator(grad, *ctx.saved_tensors, *settings), None, *[None] * len(ctx.settings))

    return backward


def _keep_all(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.window = inputs[_TENSORS:]


def _deform_backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    grads = torch.ops.torchvision._deform_conv2d_backward(grad, *ctx.saved_tensors, *ctx.window)
    return (*grads, *[None] * len(ctx.window))


# -- torchaudio -------------------------------------------------------------------------------------------------------


def prepare_torchaudio() -> bool:
    """Let ``import torchaudio`` work although its compiled part cannot load; call it first.

    The wheels for Linux are built for CUDA, and next to a torch built for the CPU they die at import.
    The schemas are declared here instead, with meta kernels.  Where the compiled part loads, nothing
    is done.

    Returns:
        Whether the declarations replace the compiled part.
    """
    if "torchaudio" in _declared:
        return True
    extensions = [*package_folder("torchaudio").glob("lib/*torchaudio*.so")]
    library = _declare("torchaudio", extensions, "forced_align")
    if library is None:
        return False
    library.impl("forced_align", _forced_align, "Meta")
    library.impl("rnnt_loss_forward", _rnnt_loss_forward, "Meta")
    library.impl("_overdrive_core_loop", lambda *tensors: tensors[2:], "Meta")
    # Registered as on a Mac, so that the simulator's registry states what it calls; it never runs.
    for key in ("Meta", "CompositeExplicitAutograd"):
        library.impl("_lfilter_core_loop", lambda *tensors: tensors[2], key)
    # torchaudio/_extension/__init__.py queries these as soon as its files are there.
    own = torch.library.Library("_torchaudio", "FRAGMENT")
    own.define("cuda_version() -> int?")
    own.define("is_align_available() -> bool")
    own.impl("cuda_version", lambda: None, "CompositeExplicitAutograd")
    own.impl("is_align_available", lambda: True, "CompositeExplicitAutograd")
    _declared["torchaudio"].append(own)
    return True


def _forced_align(
    log_probs: Tensor, targets: Tensor, _lengths: Tensor, _target_lengths: Tensor, _blank: int
) -> tuple[Tensor, Tensor]:
    # forced_align/cpu/compute.cpp: a label for each step, and a copy of the probabilities
    return targets.new_empty(log_probs.shape[:2]), torch.empty_like(log_probs)


def _rnnt_loss_forward(logits: Tensor, *_others: object) -> tuple[Tensor, Tensor]:
    # rnnt/cpu/compute.cpp: a cost for each sequence, and the gradient of the logits
    return logits.new_empty(logits.shape[:1]), torch.empty_like(logits)


# -- both -------------------------------------------------------------------------------------------------------------


def _declare(name: str, extensions: Collection[Path], operator: str) -> torch.library.Library | None:
    """Declare the operators of a compiled part whose files are there and cannot load, and let loading them do nothing.

    Args:
        name: the library.
        extensions: the files of its compiled part.
        operator: an operator that the part registers.

    Returns:
        The declarations; None: the part loads, or is not there.
    """
    if not extensions or hasattr(getattr(torch.ops, name), operator) or all(map(loads, extensions)):
        return None
    library = torch.library.Library(name, "FRAGMENT")
    _declared[name] = [library]
    for schema in load_shipped(Path(__file__).with_suffix(".yaml"))[name]:
        library.define(schema)
    load = torch.ops.load_library

    def load_library(path: Any) -> None:
        if Path(path) not in extensions:
            load(path)

    torch.ops.load_library = load_library  # type: ignore[method-assign]
    return library


def loads(extension: Path) -> bool:
    """Return whether this machine can load a shared library."""
    try:
        ctypes.CDLL(str(extension))
    except OSError:
        return False
    return True
