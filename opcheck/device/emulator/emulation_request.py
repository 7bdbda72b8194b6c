"""The request of an emulated run and its outcome; both travel between two processes as JSON."""

from typing import Any, Literal

from opcheck.common.versions import Target
from opcheck.model.records import CallGroup, MemoryGrowth, Problem, Record, Report, Trace

#: The folder, next to the request's file, where the program's processes leave their reports.
PROCESSES = "processes"


class ProgramRequest(Record, frozen=True, kw_only=True):
    """One program that a child process becomes."""

    #: a file, or with ``is_module`` the name after ``python -m``
    program: str
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    cpu_fallback: bool = False
    #: the first CPU fallback raises
    strict: bool = False
    #: where the child writes
    answer: str = ""
    #: what authenticates what it writes; the file of the request loses it before the program begins
    secret: str = ""


class RunRequest(ProgramRequest, frozen=True, kw_only=True):
    """One program and the Mac that it is to run on."""

    #: release line and macOS version, as their ``str``
    torch: str
    macos: str
    #: compute the calls by the release's kernels, too, and let the program go on with their results (replace)
    kernels: Literal["", "shadow", "replace"] = ""
    #: in an environment with the target's own torch (capture/exact.py)
    exact: bool = False


def make_run_trace(model: str, tracer: str, torch: str, target: Target, **more: Any) -> Trace:
    """Return the trace of a run that was made for a target with this torch."""
    more |= {"target_torch": str(target.torch), "target_macos": str(target.macos)}
    return Trace(model=model, mode="run", tracer=tracer, installed_torch=torch, **more)


class RunOutcome(Record, frozen=True, kw_only=True, tag="outcome"):
    """How the program ended, and the report of its run."""

    report: Report
    #: of the program's own ``sys.exit``, or 1 where an exception left it
    exit_code: int = 0


class ProcessReport(Record, frozen=True, kw_only=True):
    """What a process that the program started did on the emulated Mac."""

    groups: tuple[CallGroup, ...] = ()
    problems: tuple[Problem, ...] = ()
    #: tensors that its CPU fallbacks copied to the CPU and back, and their bytes
    copies: tuple[int, ...] = (0, 0, 0, 0)
    growth: tuple[MemoryGrowth, ...] = ()
    #: its target was called: the main module was imported again, and everything was unpickled
    started: bool = False
    #: a copy of a process that runs on the emulated Mac, and computed there
    forked: bool = False
    #: it ended without leaving a report
    lost: bool = False
    #: the globals of the main module that had a value when it started
    main_globals: tuple[str, ...] = ()
