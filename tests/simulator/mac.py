"""Running a few lines on the simulated Mac, and reading what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opcheck.capture.child.recording.recorder import Recorder
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.simulator.dispatch.tensor import to_mps
from opcheck.simulator.mac import simulated_mac

#: The installed torch's own bodies changed in 2.10.
from_2_10 = pytest.param(
    "2.10",
    True,
    marks=pytest.mark.skipif(Version.parse(torch.__version__) < Version(2, 10), reason="the installed body is older"),
)


def target(release: str = "2.13", macos: str = "15.0") -> Target:
    return Target(torch=Version.parse(release), macos=Version.parse(macos))


def no_default_device() -> None:
    """Take ``torch.set_default_device`` back, as if it was never called.

    torch 2.9's get_default_device raises after set_default_device(None).
    """
    torch.set_default_device(None)
    vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def recorded(
    run: Callable[..., Any],
    *inputs: torch.Tensor,
    release: str = "2.13",
    macos: str = "15.0",
    keep: int = 16_384,
    grad: bool = False,
    pass_recorder: bool = False,
) -> Recorder:
    """Move the inputs, run, and return the recorder; the exceptions of ``run`` pass."""
    recorder = Recorder()
    registrations = dict(load().operators(release))
    moved = [to_mps(tensor, keep=keep).requires_grad_(tensor.requires_grad) for tensor in inputs]
    with simulated_mac(target(release, macos), registrations, recorder), torch.set_grad_enabled(grad):
        run(*moved, *([recorder] if pass_recorder else []))
    return recorder


def names(run: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> list[str]:
    """The overloads that ran, without their namespace."""
    calls = recorded(run, *inputs, **options).calls
    return [entry.call.route.name.removeprefix("aten::") for entry in calls]
