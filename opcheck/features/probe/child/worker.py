"""Answers in the probing process: the tasks for a setup, the device's outcome for a trial."""

from __future__ import annotations

import functools
from typing import Any

import torch

from opcheck.common.errors import CaptureError
from opcheck.features.probe.child import judge, samples
from opcheck.features.probe.records import ProbeDone, ProbeTrial, Ready, Setup
from opcheck.numerics.child import devices
from opcheck.worker.protocol import Say


def answer(request: Setup | ProbeTrial, _say: Say) -> Ready | ProbeDone:
    """List the tasks of a setup, or do one of them.

    Raises:
        UsageError: this machine has no such device, or a pattern matches nothing.
        CaptureError: there is no database, or the probe itself broke off.
    """
    if isinstance(request, Setup):
        device, ops = _prepare(request)
        tasks = tuple(samples.tasks(ops, request, device))
        return Ready(machine=devices.machine(device), tasks=tasks)
    device, ops = _prepare(request.setup)
    task = request.task
    try:
        return ProbeDone(result=judge.probe(ops[task.opinfo], task, device, request.setup.samples))
    except Exception as error:  # what the device's kernels raise is a result
        raise CaptureError(
            f"the probe itself broke off: {type(error).__name__}: {error}",
            context=f"{task.opinfo}, {task.dtype}, {task.phase}",
            hint="this is a bug in opcheck; --op leaves the OpInfo out",
        ) from error


@functools.lru_cache(maxsize=1)
def _prepare(setup: Setup) -> tuple[torch.device, dict[str, Any]]:
    device = devices.require(setup.device)
    torch.set_num_threads(1)
    # Otherwise only the first fallback of a process is warned of.
    torch.set_warn_always(True)
    return device, samples.database()
