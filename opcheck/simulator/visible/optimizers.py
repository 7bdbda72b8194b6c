"""Simulate the steps of torch.optim, and the clipping before them, as earlier releases wrote them.

That is, where the installed ones call other operators: ``torch/optim/*.py`` of the macOS wheels of
1.13 to 2.15, each run next to the installed one (scripts/compare_optimizers.py),
``torch/nn/utils/clip_grad.py`` and ``torch/amp/grad_scaler.py``.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.target_reads import is_before
from opcheck.tracing.torch_private import backend

Tensor = torch.Tensor

#: Modules that pass a call on, between the caller and the replacement: this device,
#: torch.set_default_device's.
_HAND_ON = frozenset(
    {"opcheck.simulator.visible.device_mode", "torch.overrides", "torch.utils._device"}
)


def lerp_(self: Tensor, end: Any, weight: Any) -> Tensor:
    """Compute by a product and a sum, as up to 2.0 (adam.py, adamw.py, nadam.py, radam.py, adamax.py, rmsprop.py)."""
    if _calls("torch.optim.", Version(2, 1)):
        return self.mul_(1 - weight).add_(end, alpha=weight)
    return Tensor.lerp_(self, end, weight)


def foreach_lerp_(self: list[Tensor], ends: list[Tensor], weight: Any) -> Any:
    """Compute ``lerp_`` of each tensor, for ``foreach=True``."""
    if _calls("torch.optim.", Version(2, 1)):
        backend.foreach_mul_(self, 1 - weight)
        return backend.foreach_add_(self, ends, alpha=weight)
    return backend.foreach_lerp_(self, ends, weight)


def maximum(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Compute the maximum of both, stacked, as adamax.py does up to 2.2."""
    if out is not None and _calls("torch.optim.adamax", Version(2, 3)):
        both = torch.cat([input.unsqueeze(0), other.unsqueeze_(0)], 0)
        return torch.amax(both, 0, keepdim=False, out=out)
    return torch.maximum(input, other, out=out)


def vector_norm(x: Tensor, ord: Any = 2, *args: Any, **kwargs: Any) -> Tensor:
    """Use torch.norm, as linalg_vector_norm has no kernel, or max for infinity (clip_grad.py up to 2.0)."""
    if not args and not kwargs and _calls("torch.nn.utils.clip_grad", Version(2, 1)):
        return x.abs().max() if ord == math.inf else torch.norm(x, ord)
    return torch.linalg.vector_norm(x, ord, *args, **kwargs)


def reciprocal(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Take the reciprocal in float64 on every device, as ``unscale_`` of grad_scaler.py does up to 2.7."""
    if _calls("torch.amp.grad_scaler", Version(2, 8)):
        return self.double().reciprocal().float()
    return Tensor.reciprocal(self, *args, **kwargs)


def fused_devices() -> list[str]:
    """Return the devices of ``fused=True``: MPS since 2.5, the CPU since 2.4 (torch/utils/_foreach_utils.py)."""
    devices = _installed_fused_devices()
    if current().ask(is_before, Version(2, 5)):
        # The fused kernels of hpu and mtia came later, too.
        devices = [name for name in devices if name not in {"mps", "hpu", "mtia"}]
    if current().ask(is_before, Version(2, 4)):
        devices.remove("cpu")
    return devices


_installed_fused_devices = backend.FUSED_DEVICES.value()

#: what is called in place of torch's own
REPLACED: dict[Any, Callable[..., Any]] = {
    Tensor.lerp_: lerp_,
    Tensor.reciprocal: reciprocal,
    backend.foreach_lerp_: foreach_lerp_,
    torch.maximum: maximum,
    torch.linalg.vector_norm: vector_norm,
}


def _calls(module: str, until: Version) -> bool:
    """Return whether a module with this prefix is calling and the target is older than ``until``."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in _HAND_ON:
        frame = frame.f_back
    caller = str(frame.f_globals.get("__name__")) if frame is not None else ""
    return caller.startswith(module) and current().ask(is_before, until)
