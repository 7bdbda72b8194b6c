"""Stands for the process that probes: no torch, and every way to end."""

from __future__ import annotations

import os
import sys
import time

import msgspec

from opcheck.capture.protocol import Failure
from opcheck.data.device_evidence import Machine, Result
from opcheck.numerics.probe.records import Done, Ready, Setup, Task

NAMES = ("add", "crash", "crash everywhere", "hang", "sub")


def answer(message: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.flush()


def main() -> None:
    setup = msgspec.json.decode(sys.stdin.buffer.readline(), type=Setup)
    machine = Machine(
        device=setup.device, device_name="", os="Linux", os_version="6", arch="", torch="2.13.0", commit=""
    )  # fmt: skip
    tasks = tuple(Task(opinfo=name, dtype="float32", phase="forward") for name in NAMES)
    answer(Ready(machine=machine, tasks=tasks))
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        if setup.device == "bug":
            answer(Failure(error="CaptureError", message="a bug of ours"))
        if task.opinfo == "hang":
            time.sleep(60)
        if task.opinfo == "crash everywhere" or (task.opinfo == "crash" and setup.device != "cpu"):
            os.write(2, b"failed assertion\n")
            os.abort()
        calls = {"aten::add": "agrees"}
        answer(
            Done(
                result=Result(
                    opinfo=task.opinfo, dtype=task.dtype, phase=task.phase, outcome="works", samples=1, calls=calls
                )
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
