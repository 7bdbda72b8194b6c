"""Simulate ``torch.backends.mps``, ``torch.mps`` and ``torch.accelerator`` of a Mac."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.replacing import replaced
from opcheck.simulator import optimizers, python_visible_target, random_numbers
from opcheck.simulator.machine import CHIP, GPU_CORES, WORKING_SET, mac_machine
from opcheck.simulator.surface import AnyEvent, answering
from opcheck.tracing.torch_private import backend as places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.common.versions import Target


_yes, _no = answering(value=True), answering(value=False)


def _stream(*_args: Any) -> torch.Stream:
    # Optimizers of 2.15 ask it whether a graph is being captured (torch/optim/optimizer.py): none is.
    return torch.Stream(device="cpu")


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


_ALWAYS: tuple[tuple[Any, str, Any], ...] = (
    (*places.CUDA_INIT, _no_cuda),
    (torch.backends.mps, "is_available", _yes),
    (torch.backends.mps, "is_built", _yes),
    (*places.MPS_IS_AVAILABLE, _yes),
    (*places.HAS_MPS, True),
    *random_numbers.REPLACEMENTS,
    (torch, "Event", AnyEvent),
    (*places.GROUP_TENSORS, _group),
    (torch.version, "cuda", None),
    (torch.backends.cuda, "is_built", _no),
    (torch.backends.mps, "get_name", answering(CHIP)),
    (torch.backends.mps, "get_core_count", answering(GPU_CORES)),
    (torch.mps, "recommended_max_memory", answering(WORKING_SET)),
    (*places.FUSED_DEVICES, optimizers.fused_devices),
    (torch.mps, "is_available", _yes),
    (torch.mps, "device_count", answering(1)),
    (torch.mps, "synchronize", answering(None)),
    (torch.mps, "empty_cache", answering(None)),
    (torch.mps, "current_allocated_memory", answering(0)),
    (torch.mps, "driver_allocated_memory", answering(0)),
    (torch.accelerator, "is_available", _yes),
    (torch.accelerator, "device_count", answering(1)),
    (torch.accelerator, "current_accelerator", answering(torch.device("mps"))),
    (torch.accelerator, "current_stream", _stream),
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
        (torch.backends.mps, "is_macos_or_newer", newer),
        (torch.backends.mps, "is_macos13_or_newer", newer_than_13),
        (*places.MPS_IS_ON_MACOS, newer),
    )
    # A name that this torch lacks is one that its programs do not ask for.
    present = [each for each in replacements if hasattr(each[0], each[1])]
    with (
        replaced(present),
        python_visible_target.show_target(target),
        python_visible_target.environment_noted(),
        mac_machine(),
    ):
        yield
