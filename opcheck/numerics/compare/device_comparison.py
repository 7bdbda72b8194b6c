"""Runs the comparison on the device in a child process, and runs its reproducer.  Imports no torch."""

import os
import sys
from pathlib import Path

import msgspec

from opcheck.capture.parent import ask, variables
from opcheck.capture.request import CaptureRequest
from opcheck.numerics.compare import comparison_records
from opcheck.numerics.compare.comparison_records import ComparePlan, CompareRequest, DeviceComparison, Reproducer
from opcheck.worker.process import run
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay

#: GB that no machine has: what a device's driver reserves is no memory of this machine.
_NO_LIMIT = 1e6
#: seconds that a reproducer may take
_REPRODUCER = 300.0


def compare(request: CaptureRequest, plan: ComparePlan, *, display: ProcessDisplay = NO_DISPLAY) -> DeviceComparison:
    """Return the model of ``request`` on the plan's device, call by call with float64 on the CPU.

    Args:
        request: the model and its inputs; its target has no effect here.
        plan: the device, and what else is wanted.
        display: what is shown of the child.

    Raises:
        UsageError: this machine has no such device.
        ModelLoadError, InputError: the child raises it.
        CaptureError: the child died, was killed for its time, or the run broke off before its first call.
    """
    limit = request.memory_limit or (0.0 if plan.device == "cpu" else _NO_LIMIT)
    capture = msgspec.structs.replace(request, memory_limit=limit)
    comparison: DeviceComparison = ask(
        "opcheck.numerics.compare.child.device_run:answer",
        DeviceComparison,
        CompareRequest(capture=capture, plan=plan),
        capture,
        device=plan.device,
        display=display,
    )
    if comparison.reproducer is None or not comparison.reproducer.path:
        return comparison
    if display.progress is not None:
        display.progress("running the reproducer")
    return msgspec.structs.replace(comparison, reproducer=_try_reproducer(comparison.reproducer, request, plan))


def _try_reproducer(written: Reproducer, request: CaptureRequest, plan: ComparePlan) -> Reproducer:
    """Return the reproducer, after it was run alone."""
    chosen = variables(cpu_fallback=request.target.cpu_fallback, device=plan.device)
    done = run(
        [sys.executable, str(Path(written.path) / "repro.py")], _REPRODUCER, environment={**os.environ, **chosen}
    )
    if done.late:
        detail = f"not done after {_REPRODUCER:g} s"
        return msgspec.structs.replace(written, state=comparison_records.FAILS, detail=detail)
    printed = (done.out if done.code in {0, 1} else done.err).strip().splitlines()
    # Python, too, exits with 1 where a script raises.
    raised = done.code == 1 and "Traceback" in done.err
    states = {} if raised else {0: comparison_records.SHOWS_NOT, 1: comparison_records.SHOWS}
    state = states.get(done.code, comparison_records.FAILS)
    last = (done.err.strip().splitlines() if raised else printed)[-1:]
    return msgspec.structs.replace(written, state=state, detail=" ".join(last))
