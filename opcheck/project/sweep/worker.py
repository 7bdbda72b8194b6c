"""What joblib calls on each machine: hands models to a server process of its own, and says what came out.

It imports no torch.  Whatever a model does costs the server, never this process.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from opcheck.capture.parent import environment
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.tool import VERSION
from opcheck.common.vocabulary import Mode
from opcheck.project.sweep.attribution import audited
from opcheck.project.sweep.records import (
    LIBRARIES,
    Answer,
    Began,
    Control,
    Ended,
    Failed,
    Measure,
    Measured,
    Message,
    Request,
    Result,
    Task,
    target_name,
)
from opcheck.worker.children import (
    Answers,
    Child,
    GarbledError,
    LateError,
    Lines,
    end_with_parent,
    leave_safe_path,
    python,
)

#: seconds for what the server does itself: importing torch, a library, or the module of a class.
_IMPORTS = 300.0

#: Packages whose versions decide a result, beside opcheck's own.
PACKAGES = ("torch", "numpy", *LIBRARIES)

_servers = threading.local()


def work(task: bytes) -> bytes:
    """The results of a task, one for each mode; a failure is a result.

    Raises:
        UsageError: this machine has other versions of the packages than the sweep was started with.
        CaptureError: the server cannot be started here.
    """
    leave_safe_path()
    if multiprocessing.current_process().name.startswith("LokyProcess"):
        # A scheduler's worker has a parent of another kind: a thread of it, which may end before.
        end_with_parent()
    asked = msgspec.json.decode(task, type=Task)
    _same_versions(asked.versions)
    # One after the other: the server answers one request at a time.
    results = list(_results(asked))
    found = [_with_control(result, asked) for result in results]
    return msgspec.json.encode(found)


def versions() -> dict[str, str]:
    """Of opcheck, Python and the packages that decide a result, as they are installed here."""
    found = {"opcheck": VERSION, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _same_versions(asked: dict[str, str]) -> None:
    here = versions()
    for name, version in asked.items():
        if here.get(name) != version:
            raise UsageError(
                f"a worker has {name} {here.get(name, 'not installed')}, the sweep was started with {version}",
                context=f"worker on {os.uname().nodename}",
                hint="install the same versions on each machine: the results go into one table",
            )


def _results(task: Task) -> Iterator[Result]:
    """A result for each mode, whatever becomes of the process that makes them."""
    waiting = dict(task.keys)
    mode = next(iter(waiting))
    while waiting:
        why = Ended(why="ended together with the one that started it", problem="died")
        for message in _ask(
            Measure(task=msgspec.structs.replace(task, keys=waiting)), task.timeout
        ):
            if isinstance(message, Measured):
                waiting.pop(message.result.mode)
                yield message.result
            elif isinstance(message, Began):
                mode = message.mode or mode
            elif isinstance(message, Ended):
                why = message
        if waiting:
            lost = mode if mode in waiting else next(iter(waiting))
            yield _died(task, lost, waiting.pop(lost), why)


def _died(task: Task, mode: Mode, key: str, why: Ended) -> Result:
    failed = Failed(
        targets=tuple(map(target_name, task.targets)),
        stage="worker",
        problem=why.problem or "died",
        message=f"the process that ran the model was {why.why}" if why.why else "it said nothing",
    )
    return Result(
        key=key, model=task.model, mode=mode, config=task.model.config, failures=(failed,)
    )


def _with_control(result: Result, task: Task) -> Result:
    """What fails is run without opcheck, too, to tell whose failure it is."""
    if audited(result) or all(failure.stage in {"inputs", "worker"} for failure in result.failures):
        return result
    asked = [failure for failure in result.failures if failure.stage not in {"inputs", "worker"}]
    request = Control(
        model=task.model,
        config=result.config,
        mode=result.mode,
        stage=asked[0].stage,
        memory=task.memory,
    )
    # All of it, up to its end: what is left unread would answer the next request.
    said = list(_ask(request, 60.0))
    texts = [
        one.text if isinstance(one, Answer) else one.why
        for one in said
        if isinstance(one, (Answer, Ended))
    ]
    text = next(filter(None, texts), "")
    failures = tuple(
        msgspec.structs.replace(failure, plain=text) if failure in asked else failure
        for failure in result.failures
    )
    return msgspec.structs.replace(result, failures=failures)


def _ask(request: Request, timeout: float) -> Iterator[Message]:
    """What the server says to a request, up to its end; nothing more where the server is gone."""
    server = getattr(_servers, "one", None)
    if server is None:
        server = _servers.one = Server()
    for message in server.ask(request, timeout):
        yield message
        if isinstance(message, Ended):
            return
    server.end()
    _servers.one = None


class Server:
    """A process ``python -m opcheck.project.sweep.server`` and the pipes to it."""

    def __init__(self) -> None:
        request = CaptureRequest(model="", torch="", macos="")
        self._child = Child(
            python("-m", "opcheck.project.sweep.server"),
            {**os.environ, **environment(request), "PYTORCH_JIT": "0", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("OPCHECK_SWEEP_LOG") else None,
            bufsize=0,
        )
        process = self._child.process
        if process.stdin is None or process.stdout is None:
            message = "the server has no pipes"
            raise RuntimeError(message)
        self._requests = process.stdin.fileno()
        lines = Lines(process.stdout.fileno(), lambda: self._child.alive)
        self._answers = Answers[Message](lines, Message)
        first = next(self._messages(_IMPORTS), None)
        if first is None:
            self.end()
            raise CaptureError(
                "the process that starts the models could not be started",
                context=f"{sys.executable} -m opcheck.project.sweep.server on {os.uname().nodename}",
                hint="run it by itself to see what it prints",
            )

    def ask(self, request: Request, timeout: float) -> Iterator[Message]:
        """What it says; ends where it is gone, or hangs."""
        content = memoryview(msgspec.json.encode(request) + b"\n")
        try:
            while content:
                content = content[os.write(self._requests, content) :]
        except BrokenPipeError:
            return
        # The server itself keeps the limits of its child: this one is for what it does itself.
        yield from self._messages(_IMPORTS + 2 * timeout)

    def _messages(self, patience: float) -> Iterator[Message]:
        with contextlib.suppress(LateError, GarbledError):
            while (message := self._answers.next(time.monotonic() + patience)) is not None:
                yield message

    def end(self) -> None:
        """Kill it."""
        self._child.end()
