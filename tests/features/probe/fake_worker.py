"""Stands for the process that probes: every way to end."""

from __future__ import annotations

import os
import time

from opcheck.common.errors import CaptureError
from opcheck.data.device_evidence import Machine, Result
from opcheck.features.probe.probe_messages import ProbeDone, ProbeTask, ProbeTrial, Ready, Setup
from opcheck.worker.protocol import Say

NAMES = ("add", "crash", "crash everywhere", "hang", "sub")


def answer(request: Setup | ProbeTrial, _say: Say) -> Ready | ProbeDone:
    if isinstance(request, Setup):
        machine = Machine(
            device=request.device, device_name="", os="Linux", os_version="6", arch="", torch="2.13.0", commit=""
        )  # fmt: skip
        tasks = tuple(ProbeTask(opinfo=name, dtype="float32", phase="forward") for name in NAMES)
        return Ready(machine=machine, tasks=tasks)
    device, opinfo = request.setup.device, request.task.opinfo
    if device == "bug":
        raise CaptureError("a bug of ours")
    if opinfo == "hang":
        time.sleep(60)
    if opinfo == "crash everywhere" or (opinfo == "crash" and device != "cpu"):
        os.write(2, b"failed assertion\n")
        os.abort()
    calls = {"aten::add": "agrees"}
    return ProbeDone(
        result=Result(
            opinfo=opinfo, dtype="float32", phase="forward", outcome="works", samples=1, calls=calls
        )
    )  # fmt: skip
