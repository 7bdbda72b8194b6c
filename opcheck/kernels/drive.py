"""Chooses a way of calling a kernel, and records the outcome."""

from __future__ import annotations

from opcheck.data.wheels.metallib import Function
from opcheck.kernels import drivers, names, pointwise
from opcheck.kernels.judging import Judged
from opcheck.kernels.machine import KernelError, Machine
from opcheck.kernels.pointwise import Unfit
from opcheck.kernels.records import Outcome, Task, Verdict

#: Units in the last place up to which a result is called right.
_RIGHT = 1.0


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
            judged = self._judged(machine, function, named)
            verdict = "wrong" if judged.wrong else "right" if judged.ulps <= _RIGHT else "within"
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
            reason=reason,
        )

    def _judged(self, machine: Machine, function: Function, named: names.Named) -> Judged:
        """Compile only what can be called."""
        family_known = drivers.is_driven(function.name)
        if not family_known and not named.form:
            raise Unfit("its family is not driven")
        kernel = machine.kernel(machine.compiled(function))
        if family_known:
            return drivers.judge(function.name, kernel)
        return self._pointwise.judge(named, kernel)
