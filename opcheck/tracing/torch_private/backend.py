"""The attributes that give Python the devices, and what they can do."""

import functools
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer

from opcheck.common.yaml_text import load_shipped
from opcheck.tracing.torch_private import AttributePlace, place, require_names

MPS_IS_AVAILABLE = AttributePlace(torch._C, "_mps_is_available")
"""Whether there is a GPU of Apple's. Optional: a release that lacks it does not ask it. Replaced.
"""

HAS_MPS = AttributePlace(torch._C, "_has_mps")
"""Whether torch was built for MPS. Optional: a release that lacks it does not ask it. Replaced."""

MPS_IS_ON_MACOS = AttributePlace(torch._C, "_mps_is_on_macos_or_newer")
"""Whether macOS is at least this version. Optional: a release that lacks it does not ask it. Replaced.
"""

#: What describes a machine, and touches no GPU.  Dynamo requests the current stream, which is a number to a Mac
#: (torch/_dynamo/variables/streams.py, 2.13; aten/src/ATen/mps/MPSGuardImpl.h, getDevice and getStream).
_QUESTIONS = frozenset(load_shipped(Path(__file__).with_name("questions.yaml")))


BUILT_FOR_MPS = bool(getattr(*HAS_MPS, False))
"""Whether the installed torch is a Mac's. Optional: a release that lacks the name is not."""


@functools.cache
def device_functions() -> tuple[AttributePlace, ...]:
    """Return the functions of C++ that let the device work. Optional; replaced.

    They are found by their prefixes: each release has more of them (torch/csrc/mps/Module.cpp,
    torch/csrc/DeviceAccelerator.cpp, 2.8 to 2.15).
    """
    prefixes = ("_mps_", "_accelerator_")
    names = [name for name in dir(torch._C) if name.startswith(prefixes) and name not in _QUESTIONS]
    return tuple(AttributePlace(torch._C, name) for name in names)


def accelerator_function(name: str) -> AttributePlace:
    """Return a function of C++ that torch.accelerator calls. Optional: 2.9 has the first for memory; replaced."""
    return AttributePlace(torch._C, f"_accelerator_{name}")


def _answer(*, value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def without_device() -> list[tuple[AttributePlace, Any]]:
    """Return what a build without MPS answers where Python requests it. Optional; replaced."""
    return [
        (HAS_MPS, False),
        (MPS_IS_AVAILABLE, _answer(value=False)),
        (AttributePlace(torch.backends.mps, "is_available"), _answer(value=False)),
        (AttributePlace(torch.backends.mps, "is_built"), _answer(value=False)),
        (AttributePlace(torch.mps, "is_available"), _answer(value=False)),
        (ACCELERATOR, _answer(value=torch.device("cpu"))),
        (AttributePlace(torch._C, "_accelerator_getAccelerator"), _answer(value=None)),
    ]


ACCELERATOR = AttributePlace(torch._C, "_get_accelerator")
"""The device that ``init_process_group`` and FSDP take by default. Required; replaced."""

SHARING_STRATEGIES = AttributePlace(torch.multiprocessing, "_all_sharing_strategies")
"""The ways to share tensors between processes. Required; replaced."""

VERIFY_PARAMS = AttributePlace(torch.distributed, "_verify_params_across_processes")
"""The first collective of DistributedDataParallel. Required where torch.distributed is built; replaced."""

GROUP_TENSORS = place(torch._C, "_group_tensors_by_device_and_dtype")
"""Groups tensors by C++'s device, which is the CPU's for a simulated tensor. Required; replaced."""

FUSED_DEVICES = AttributePlace(optimizer, "_get_fused_kernels_supported_devices")
"""The devices that ``fused=True`` of an optimizer takes. Optional: a release that lacks it does not
ask it. Replaced.
"""

CUDA_INIT = AttributePlace(torch.cuda, "_lazy_init")
"""Looks for CUDA's driver. Optional: a release that lacks it does not ask it. Replaced."""


def forget_triton() -> None:
    """Clear what torch keeps about Triton's package (torch/utils/_triton.py, 2.8 to 2.15). Optional."""
    for value in vars(sys.modules.get("torch.utils._triton", object)).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def without_cuda() -> list[tuple[AttributePlace, Any]]:
    """Return what a build without CUDA, as each Mac's is, has for the names of CUDA. Optional; replaced.

    A build with CUDA, which Linux gets from PyPI, answers some of them without a GPU: ``cudnn.is_available()`` is
    true, and ``cuda.Event()`` and ``nvtx.range_push()`` return (torch/backends/cudnn/__init__.py,
    torch/cuda/streams.py, torch/cuda/nvtx.py, torch/cuda/_utils.py, 2.8 to 2.15).
    """

    def refuse(text: str) -> Callable[..., Any]:
        def raise_error(*_args: Any, **_kwargs: Any) -> Any:
            raise RuntimeError(text)

        return raise_error

    def dummy(name: str) -> type:
        text = f"Tried to instantiate dummy base class {name}"
        return type(name, (), {"__init__": refuse(text)})

    event, graph = dummy("Event"), dummy("CUDAGraph")
    nvtx = refuse("NVTX functions not installed. Are you sure you have a CUDA build?")
    collectives = sys.modules.get("torch.distributed.distributed_c10d")
    places: list[tuple[Any, str, Any]] = [
        (torch.backends.cudnn, "is_available", _answer(value=False)),
        (torch.backends.cudnn, "version", _answer(value=None)),
        (torch.cuda, "_is_compiled", _answer(value=False)),
        (torch.cuda, "get_arch_list", _answer(value=[])),
        (torch.cuda, "Event", event),
        (torch.cuda.streams, "Event", event),
        (torch.cuda, "CUDAGraph", graph),
        (torch.cuda.graphs, "CUDAGraph", graph),
        *((torch.cuda.nvtx, name, nvtx) for name in ("mark", "range_push", "range_pop")),
        (collectives, "_NCCL_AVAILABLE", False),
    ]
    return [(AttributePlace(owner, name), value) for owner, name, value in places if hasattr(owner, name)]


with require_names("moving tensors to a device that the machine does not have"):
    from torch.utils import _device

    constructors: Callable[[], Collection[Any]] = _device._device_constructors
    """The functions of torch that take ``device=``. Required."""

    def default_device() -> Any:
        """Return what ``torch.set_default_device`` set, or None. Required."""
        return _device.CURRENT_DEVICE

    default_device()

    def clear_default_device() -> None:
        """Take ``torch.set_default_device`` back, as if it was never called. Required.

        torch 2.9's get_default_device raises after set_default_device(None).
        """
        torch.set_default_device(None)
        vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)

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

private_backend_name: Callable[[], str] = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "privateuseone")
"""The device of another package. Optional: without it, such a device goes by the name that torch
gave it.
"""
