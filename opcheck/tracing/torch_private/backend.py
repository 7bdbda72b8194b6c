"""The attributes by which Python asks which devices there are, and what they can do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.optim import optimizer

from opcheck.tracing.torch_private import Place, place, required

MPS_IS_AVAILABLE = Place(torch._C, "_mps_is_available")
"""Whether there is a GPU of Apple's. Optional: a release that lacks it does not ask it. Replaced.
"""

HAS_MPS = Place(torch._C, "_has_mps")
"""Whether torch was built for MPS. Optional: a release that lacks it does not ask it. Replaced."""

MPS_IS_ON_MACOS = Place(torch._C, "_mps_is_on_macos_or_newer")
"""Whether macOS is at least this one. Optional: a release that lacks it does not ask it. Replaced.
"""

GROUP_TENSORS = place(torch._C, "_group_tensors_by_device_and_dtype")
"""Groups tensors by C++'s device, which is the CPU's for a simulated tensor. Required; replaced."""

FUSED_DEVICES = Place(optimizer, "_get_fused_kernels_supported_devices")
"""The devices that ``fused=True`` of an optimizer takes. Optional: a release that lacks it does not
ask it. Replaced.
"""

CUDA_INIT = Place(torch.cuda, "_lazy_init")
"""Looks for CUDA's driver. Optional: a release that lacks it does not ask it. Replaced."""

with required("moving tensors to a device that the machine does not have"):
    from torch.utils import _device

    constructors: Callable[[], Collection[Any]] = _device._device_constructors
    """The functions of torch that take ``device=``. Required."""

    def default_device() -> Any:
        """Return what ``torch.set_default_device`` set, or None. Required."""
        return _device.CURRENT_DEVICE

    default_device()

    only_cpu_lifted = torch._C._only_lift_cpu_tensors
    """Whether ``torch.tensor`` makes a tensor on the CPU first, then moves it. Required."""

    set_only_cpu_lifted = torch._C._set_only_lift_cpu_tensors
    """Sets that, for ``torch.tensor(..., device="mps")``. Required."""

    generator_class: Any = torch._C.Generator
    """The class in C++ of ``torch.Generator``, which the simulation replaces. Required."""

    foreach_mul_: Callable[..., Any] = torch._foreach_mul_
    """Multiplies each tensor of a list: a step of an optimizer as earlier releases wrote it.
    Required.
    """

    foreach_add_: Callable[..., Any] = torch._foreach_add_
    """Adds to each tensor of a list, for the same. Required."""

    foreach_lerp_: Callable[..., Any] = torch._foreach_lerp_
    """Interpolates each tensor of a list, for the same. Required."""

private_backend_name: Callable[[], str] = getattr(
    torch._C, "_get_privateuse1_backend_name", lambda: "privateuseone"
)
"""The device of another package. Optional: without it, such a device goes by the name that torch
gave it.
"""
