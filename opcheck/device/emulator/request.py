"""The request of an emulated run and its outcome; both travel between two processes as JSON."""

from __future__ import annotations

from opcheck.model.records import Record, Report


class RunRequest(Record, frozen=True, kw_only=True):
    """One program and the Mac that it is to run on."""

    #: a file, or with ``is_module`` the name after ``python -m``
    program: str
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    #: release line and macOS version, as their ``str``
    torch: str
    macos: str
    cpu_fallback: bool = False
    #: the first CPU fallback raises
    strict: bool = False
    #: in an environment with the target's own torch (capture/exact.py)
    exact: bool = False
    #: where the child writes its Outcome
    answer: str = ""


class Outcome(Record, frozen=True, kw_only=True, tag="outcome"):
    """How the program ended, and the report of its run."""

    report: Report
    #: of the program's own ``sys.exit``, or 1 where an exception left it
    exit_code: int = 0
