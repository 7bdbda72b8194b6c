"""The child process: ``python -m opcheck.numerics.probe.worker`` reads a setup and then tasks, one a line, and answers each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import IO

import msgspec

from opcheck.capture import installed
from opcheck.capture.protocol import Failure
from opcheck.capture.worker import end
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.numerics.probe.records import Answer, Done, Ready, Setup, Task
from opcheck.worker.children import die_with_parent


def main() -> int:
    """Answer until there are no more tasks; what the kernels print goes to stderr."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for answer in _answers(sys.stdin.buffer):
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()
    return 0


def _answers(lines: IO[bytes]) -> Iterator[Answer]:
    setup = msgspec.json.decode(lines.readline(), type=Setup)
    try:
        ready, work = _begin(setup)
    except OpcheckError as error:
        yield Failure(
            error=type(error).__name__,
            message=error.message,
            context=error.context,
            hint=error.hint,
        )
        return
    yield ready
    for line in lines:
        task = msgspec.json.decode(line, type=Task)
        try:
            yield work(task)
        except Exception as error:  # noqa: BLE001 - ours: what the device's kernels raise is a result
            yield Failure(
                error=CaptureError.__name__,
                message=f"the probe itself broke off: {type(error).__name__}: {error}",
                context=f"{task.opinfo}, {task.dtype}, {task.phase}",
                hint="this is a bug in opcheck; --op leaves the OpInfo out",
            )
            return


def _begin(setup: Setup) -> tuple[Ready, Callable[[Task], Done]]:
    installed.require()
    import torch  # noqa: PLC0415 - importing it is the first thing that can fail

    from opcheck.numerics import devices  # noqa: PLC0415
    from opcheck.numerics.probe import judge, samples  # noqa: PLC0415

    device = devices.require(setup.device)
    torch.set_num_threads(1)
    # Otherwise the first fallback of a process is the only one that it tells of.
    torch.set_warn_always(True)
    ops = samples.database()
    tasks = tuple(samples.tasks(ops, setup, device))

    def work(task: Task) -> Done:
        return Done(result=judge.probe(ops[task.opinfo], task, device, setup.samples))

    return Ready(machine=devices.machine(device), tasks=tasks), work


if __name__ == "__main__":
    end(main())
