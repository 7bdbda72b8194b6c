"""Chooses a way of calling a kernel, and records the outcome."""

from __future__ import annotations

from opcheck.data.wheels.metallib import Function
from opcheck.kernels import drivers, names, pointwise
from opcheck.kernels.judging import Judged
from opcheck.kernels.machine import Kernel, KernelError, Machine
from opcheck.kernels.pointwise import Unfit
from opcheck.kernels.records import Outcome, Task, Verdict

#: Units in the last place up to which a result is called right.
_RIGHT = 1.0
_FUSED = "right only where a multiplication and an addition are rounded one by one"
_SEPARATE = "right only where a multiplication and an addition are fused"
_FLUSHED = "right only where denormal numbers are kept, which Metal does not promise"
_RACE = (
    "a race: another order of the threads gives other results, and those shown are this runner's"
)


class Drivers:
    """The ways of calling kernels; one set a task, which shares values and references."""

    def __init__(self) -> None:
        self._pointwise = pointwise.Driver()

    def outcome(self, machine: Machine, function: Function, task: Task) -> Outcome:
        """Run a kernel, and judge its results."""
        named = names.parse(function.name)
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
        except (KernelError, Unfit) as error:
            reason = str(error)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            # A kernel that no table foresaw is one that is not run, not the end of the run.
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}"
        return Outcome(
            kernel=function.name,
            family=task.family,
            operation=task.operation,
            dtypes=named.dtypes,
            verdict=verdict,
            compared=judged.compared,
            wrong=judged.wrong,
            ulps=round(judged.ulps, 2),
            smallest=judged.smallest,
            worst=judged.worst,
            ranges=judged.ranges,
            usual=judged.usual,
            reason=reason,
        )

    def _kernel(self, machine: Machine, function: Function, named: names.Named) -> Kernel:
        """Compile only what can be called."""
        if not drivers.is_driven(function.name) and not named.form:
            raise Unfit("its family is not driven")
        return machine.kernel(machine.compile_cached(function))

    def _judge(self, kernel: Kernel, named: names.Named) -> Judged:
        if drivers.is_driven(kernel.name):
            return drivers.judge(kernel.name, kernel)
        return self._pointwise.judge(named, kernel)
