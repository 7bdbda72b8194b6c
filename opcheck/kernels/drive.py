"""Chooses a way of calling a kernel, and records the outcome, in a child process that the kernel may end."""

import functools
import time
import warnings
from pathlib import Path

import msgspec
import torch

from opcheck.data.wheels.metallib import Function
from opcheck.kernels import drivers, kernel_names, library, pointwise
from opcheck.kernels.judging import Judged
from opcheck.kernels.kernel_machine import Kernel, KernelError, KernelMachine
from opcheck.kernels.kernel_records import KernelOutcome, KernelSource, Task, Trial, Verdict
from opcheck.worker.protocol import Say

#: A result with an error of at most so many units in the last place is right.
_RIGHT = 1.0
_FUSED = "right only where a multiplication and an addition are rounded one by one"
_SEPARATE = "right only where a multiplication and an addition are fused"
_FLUSHED = "right only where denormal numbers are kept, which Metal does not promise"
_RACE = "a race: another order of the threads gives other results, and those shown are this runner's"


class Drivers:
    """The ways of calling kernels; one set a task, which shares values and references."""

    def __init__(self) -> None:
        self._pointwise = pointwise.Driver()

    def outcome(self, machine: KernelMachine, function: Function, task: Task) -> KernelOutcome:
        """Run a kernel, and judge its results."""
        named = kernel_names.parse(function.name)
        verdict: Verdict = "not run"
        judged, reason = Judged(compared=0, wrong=0, ulps=0.0), ""
        try:
            kernel = self._kernel(machine, function, named)
            judged = self._judge(kernel, named)
            verdict = "wrong" if judged.wrong else "right" if judged.ulps <= _RIGHT else "within"
            if kernel.fusible:
                kernel.fuse(fused=False)
                separate = self._judge(kernel, named)
                kernel.fuse(fused=True)
                if bool(separate.wrong) != bool(judged.wrong):
                    verdict = "depends on fusing"
                    reason = _FUSED if judged.wrong else _SEPARATE
                    judged = judged if judged.wrong else separate
            if verdict == "wrong" and kernel.flushed:
                kernel.flushed = False
                if not self._judge(kernel, named).wrong:
                    verdict, reason = "depends on flushing", _FLUSHED
                kernel.flushed = True
            if kernel.together and not verdict.startswith("depends"):
                # A missing barrier may show in one order of the threads alone.
                kernel.backwards = True
                other = self._judge(kernel, named)
                if other.wrong and not judged.wrong:
                    verdict, reason, judged = "wrong", _RACE, other
                elif judged.wrong and other != judged:
                    reason = _RACE
        except (KernelError, pointwise.Unfit) as error:
            reason = str(error)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            # A kernel that no table covers is not run; the run continues.
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}"
        judged = msgspec.structs.replace(judged, ulps=round(judged.ulps, 2))
        return kernel_names.outcome_of(task, function.name, verdict, reason, **msgspec.structs.asdict(judged))

    def _kernel(self, machine: KernelMachine, function: Function, named: kernel_names.Named) -> Kernel:
        """Compile only what can be called."""
        if not drivers.is_driven(function.name) and not named.form:
            raise pointwise.Unfit("its family is not driven")
        return machine.kernel(machine.compile_cached(function))

    def _judge(self, kernel: Kernel, named: kernel_names.Named) -> Judged:
        if drivers.is_driven(kernel.name):
            return drivers.judge(kernel.name, kernel)
        return self._pointwise.judge(named, kernel)


def answer(trial: Trial, _say: Say) -> KernelOutcome:
    """Run a kernel, and judge its results."""
    machine, released = _prepare(trial.source)
    start = time.process_time()
    outcome = _drivers(trial.task).outcome(machine, released.functions[trial.kernel], trial.task)
    return msgspec.structs.replace(outcome, seconds=round(time.process_time() - start, 4))


@functools.lru_cache(maxsize=1)
def _prepare(source: KernelSource) -> tuple[KernelMachine, library.Library]:
    torch.set_num_threads(1)
    # Half complex numbers are experimental on the CPU; they are only converted.
    warnings.filterwarnings("ignore", message="ComplexHalf")
    warnings.filterwarnings("ignore", message="index_reduce")
    released = library.read(source.release, Path(source.wheels), source.section)
    return KernelMachine(Path(source.cache)), released


@functools.lru_cache(maxsize=1)
def _drivers(_task: Task) -> Drivers:
    """Return the drivers of a task, whose kernels share values and references."""
    return Drivers()
