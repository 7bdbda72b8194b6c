"""The function that joblib calls on each machine: passes models to a server process, and returns the results.

It imports no torch.  Whatever a model does costs the server, never this process.
"""

import contextlib
import importlib.metadata
import os
import platform
import sys
import threading

import msgspec
from msgspec.structs import replace

from opcheck.capture.parent import variables
from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.tool import VERSION
from opcheck.common.vocabulary import Mode
from opcheck.features.sweep.sweep_records import (
    LIBRARIES,
    Control,
    EndedProcess,
    Measure,
    MeasuredResult,
    MissingVerdict,
    PlainRun,
    Prepare,
    Reply,
    SweepResult,
    SweepTask,
    target_name,
)
from opcheck.features.sweep.sweep_summary import has_verdicts
from opcheck.worker.platform import CAN_FORK
from opcheck.worker.process import end_all
from opcheck.worker.worker import Worker, WorkerError

#: seconds for the server's own work: importing torch, a library, or the module of a class.
_IMPORTS = 300.0
#: seconds beyond the limit of a model until its server counts as stopped
_GRACE = 30.0

#: Packages whose versions decide a result, in addition to opcheck's.
PACKAGES = ("torch", "numpy", *LIBRARIES)

_Server = Worker[Prepare | Measure | Control, Reply]
#: The server of each thread of this process, and its interpreter.
_servers: dict[int, tuple[str, _Server]] = {}


def work(task: bytes) -> bytes:
    """Return the results of a task, one for each mode; a failure is a result.

    Raises:
        UsageError: this machine has other versions of the packages than the sweep was started with.
        CaptureError: the server cannot be started here.
    """
    asked = msgspec.json.decode(task, type=SweepTask)
    _same_versions(asked.versions)
    return msgspec.json.encode([_with_control(_result(asked, mode), asked) for mode in asked.keys])


def versions() -> dict[str, str]:
    """Return the installed versions of opcheck, Python and the packages that decide a result."""
    installed = {"opcheck": VERSION, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def _same_versions(asked: dict[str, str]) -> None:
    here = versions()
    for name, version in asked.items():
        if here.get(name) != version:
            raise UsageError(
                f"a worker has {name} {here.get(name, 'not installed')}, the sweep was started with {version}",
                context=f"worker on {platform.node()}",
                hint="install the same versions on each machine: the results go into one table",
            )


def _result(task: SweepTask, mode: Mode) -> SweepResult:
    """Return the result of a mode, also if the process that measures it dies."""
    reply = _ask(Measure(task=task, mode=mode), task.seconds, task.interpreter)
    if isinstance(reply, MeasuredResult):
        return reply.result
    assert isinstance(reply, EndedProcess)
    failed = MissingVerdict(
        targets=tuple(map(target_name, task.targets)),
        stage="worker",
        problem=reply.problem,
        message=f"the process that ran the model {reply.how}",
    )
    model = task.model
    return SweepResult(
        key=task.keys[mode], model=model, mode=mode, config=model.config, failures=(failed,)
    )


def _with_control(result: SweepResult, task: SweepTask) -> SweepResult:
    """Run a failed model without opcheck, too, to attribute the failure."""
    asked = [failure for failure in result.failures if failure.stage not in {"inputs", "worker"}]
    if has_verdicts(result) or not asked:
        return result
    request = Control(
        model=task.model,
        config=result.config,
        mode=result.mode,
        stage=asked[0].stage,
        memory=task.memory,
    )
    reply = _ask(request, 120.0, task.interpreter)
    text = reply.text if isinstance(reply, PlainRun) else ""
    text = reply.how if isinstance(reply, EndedProcess) else text
    failures = tuple(
        replace(failure, plain=text) if failure in asked else failure for failure in result.failures
    )
    return replace(result, failures=failures)


def _ask(request: Measure | Control, seconds: float, interpreter: str) -> Reply:
    """Send a request to the server of this thread, which is started if there is none with this interpreter."""
    thread = threading.get_ident()
    earlier, server = _servers.get(thread, ("", None))
    if server is None or earlier != interpreter:
        if server is not None:
            server.end()
        server = _Server(
            "opcheck.features.sweep.server:answer",
            Reply,
            environment={**variables(), "OMP_NUM_THREADS": "1"},
            torch=True,
            show_output=bool(os.environ.get("OPCHECK_SWEEP_LOG")),
            interpreter=interpreter,
        )
        _servers[thread] = interpreter, server
    try:
        if not server.alive:
            server.end()
            _prepare(server)
        # The limit is for the server's own work; it announces the time of the model, whose fork it limits.
        return server.ask(request, _IMPORTS, more=seconds + _GRACE)
    except WorkerError as error:
        if error.kind == "late":
            return EndedProcess(problem="hung", how=str(error))
        how = "was ended with its parent process" if CAN_FORK else str(error)
        return EndedProcess(problem="died", how=how)
    finally:
        if not CAN_FORK:
            server.end()


def end_servers() -> None:
    """End the servers of this process's threads, and what their models left behind."""
    if _servers:
        for thread in list(_servers):
            _servers.pop(thread)[1].end()
        end_all()


def _prepare(server: _Server) -> None:
    try:
        server.ask(Prepare(), _IMPORTS)
    except WorkerError as error:
        if error.code < 0:
            raise  # a signal ended it: that of another model, or of a system without memory
        raise CaptureError(
            f"the process that starts the models {error}",
            context=f"opcheck.features.sweep.server on {platform.node()}: {error.printed}",
            hint="run it with OPCHECK_SWEEP_LOG=1 to see all that is printed",
        ) from error
