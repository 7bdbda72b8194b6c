"""The child process that runs kernels: an assertion of LLVM or a kernel may end it.

It reads tasks, one JSON object a line, and writes outcomes; before each kernel it writes its name,
so that the parent knows at which it ended.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import msgspec
import torch

from opcheck.kernels import drive, library
from opcheck.kernels.machine import Machine
from opcheck.kernels.records import Answer, Order, Task
from opcheck.worker import children


def main() -> None:
    """Run the tasks that come on stdin."""
    children.die_with_parent()
    torch.set_num_threads(1)
    # Half complex numbers are experimental on the CPU; they are only converted.
    warnings.filterwarnings("ignore", message="ComplexHalf")
    out = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115  (stdout, without a buffer)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    found = library.read(order.release, Path(order.wheels), order.section)
    machine = Machine(Path(order.cache))

    def write(answer: Answer) -> None:
        out.write(msgspec.json.encode(answer) + b"\n")

    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        driver = drive.Drivers()
        for name in task.kernels:
            write(Answer(begun=name))
            start = time.process_time()
            outcome = driver.outcome(machine, found.functions[name], task)
            seconds = time.process_time() - start
            write(Answer(outcome=msgspec.structs.replace(outcome, seconds=round(seconds, 4))))
        write(Answer(done=True))


if __name__ == "__main__":
    main()
