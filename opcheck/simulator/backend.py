"""Simulate ``torch.backends.mps``, ``torch.mps`` and ``torch.accelerator`` of a Mac."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.common.replacing import replaced
from opcheck.simulator import optimizers, python_visible_target, random_numbers
from opcheck.simulator.events import AnyEvent
from opcheck.simulator.machine import CHIP, GPU_CORES, WORKING_SET, mac_machine
from opcheck.tracing.torch_private import backend as places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.common.versions import Target


class _Replacement(NamedTuple):
    place: Any
    name: str
    value: Any


def _yes(*_args: Any, **_kwargs: Any) -> bool:
    return True


def _no(*_args: Any, **_kwargs: Any) -> bool:
    return False


def _return_1(*_args: Any, **_kwargs: Any) -> int:
    return 1


def _zero(*_args: Any, **_kwargs: Any) -> int:
    return 0


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _name() -> str:
    return CHIP


def _cores() -> int:
    return GPU_CORES


def _recommended() -> int:
    return WORKING_SET


def _stream(*_args: Any) -> torch.Stream:
    # Optimizers of 2.15 ask it whether a graph is being captured (torch/optim/optimizer.py): none is.
    return torch.Stream(device="cpu")


def _mps(*_args: Any, **_kwargs: Any) -> torch.device:
    return torch.device("mps")


_group_by_cpp_device = places.GROUP_TENSORS.value()


def _group(lists: Any, with_indices: Any = False) -> dict[Any, Any]:
    """Group by the device that Python sees, because C++ sees the CPU (torch/nn/utils/clip_grad.py)."""
    return {
        (next(t.device for t in group[0][0] if t is not None), dtype): group
        for (_, dtype), group in _group_by_cpp_device(lists, with_indices).items()
    }


# torch.compiler reads __wrapped__ of is_available (torch/_dynamo/trace_rules.py, 2.15).
_yes.__wrapped__ = _yes  # type: ignore[attr-defined]


def _no_cuda() -> None:
    """Raise the error of a build without CUDA; one with CUDA would search for its driver (torch/cuda/__init__.py)."""
    raise AssertionError("Torch not compiled with CUDA enabled")


_ALWAYS = (
    _Replacement(*places.CUDA_INIT, _no_cuda),
    _Replacement(torch.backends.mps, "is_available", _yes),
    _Replacement(torch.backends.mps, "is_built", _yes),
    _Replacement(*places.MPS_IS_AVAILABLE, _yes),
    _Replacement(*places.HAS_MPS, value=True),
    *(_Replacement(*each) for each in random_numbers.REPLACEMENTS),
    _Replacement(torch, "Event", AnyEvent),
    _Replacement(*places.GROUP_TENSORS, _group),
    _Replacement(torch.version, "cuda", None),
    _Replacement(torch.backends.cuda, "is_built", _no),
    _Replacement(torch.backends.mps, "get_name", _name),
    _Replacement(torch.backends.mps, "get_core_count", _cores),
    _Replacement(torch.mps, "recommended_max_memory", _recommended),
    _Replacement(*places.FUSED_DEVICES, optimizers.fused_devices),
    _Replacement(torch.mps, "is_available", _yes),
    _Replacement(torch.mps, "device_count", _return_1),
    _Replacement(torch.mps, "synchronize", _nothing),
    _Replacement(torch.mps, "empty_cache", _nothing),
    _Replacement(torch.mps, "current_allocated_memory", _zero),
    _Replacement(torch.mps, "driver_allocated_memory", _zero),
    _Replacement(torch.accelerator, "is_available", _yes),
    _Replacement(torch.accelerator, "device_count", _return_1),
    _Replacement(torch.accelerator, "current_accelerator", _mps),
    _Replacement(torch.accelerator, "current_stream", _stream),
)


@contextlib.contextmanager
def mps_backend(target: Target) -> Iterator[None]:
    """Present that Mac's backend to the process for the length of the block.

    transformers reads ``is_available`` once, at import (integrations/sdpa_attention.py): enter this before.
    """

    def newer(major: int, minor: int = 0) -> bool:
        return python_visible_target.ask(python_visible_target.is_newer, major, minor)

    def newer_than_13(minor: int = 0) -> bool:
        return newer(13, minor)

    replacements = (
        *_ALWAYS,
        _Replacement(torch.backends.mps, "is_macos_or_newer", newer),
        _Replacement(torch.backends.mps, "is_macos13_or_newer", newer_than_13),
        _Replacement(*places.MPS_IS_ON_MACOS, newer),
    )
    # A name that this torch lacks is one that its programs do not ask for.
    present = [each for each in replacements if hasattr(each.place, each.name)]
    with (
        replaced(present),
        python_visible_target.telling(target),
        python_visible_target.environment_noted(),
        mac_machine(),
    ):
        yield
