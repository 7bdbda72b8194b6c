"""Runs a kernel in a child process, which an assertion of LLVM or the kernel itself may end."""

from __future__ import annotations

import functools
import time
import warnings
from pathlib import Path

import msgspec
import torch

from opcheck.kernels import drive, library
from opcheck.kernels.library import Library
from opcheck.kernels.machine import Machine
from opcheck.kernels.records import Outcome, Source, Task, Trial
from opcheck.worker.protocol import Say


def answer(trial: Trial, _say: Say) -> Outcome:
    """Run a kernel, and judge its results."""
    machine, released = _prepare(trial.source)
    start = time.process_time()
    outcome = _drivers(trial.task).outcome(machine, released.functions[trial.kernel], trial.task)
    seconds = round(time.process_time() - start, 4)
    return msgspec.structs.replace(outcome, seconds=seconds)


@functools.lru_cache(maxsize=1)
def _prepare(source: Source) -> tuple[Machine, Library]:
    torch.set_num_threads(1)
    # Half complex numbers are experimental on the CPU; they are only converted.
    warnings.filterwarnings("ignore", message="ComplexHalf")
    warnings.filterwarnings("ignore", message="index_reduce")
    released = library.read(source.release, Path(source.wheels), source.section)
    return Machine(Path(source.cache)), released


@functools.lru_cache(maxsize=1)
def _drivers(_task: Task) -> drive.Drivers:
    """Return the drivers of a task, whose kernels share values and references."""
    return drive.Drivers()
