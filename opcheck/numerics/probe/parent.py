"""Drives probing processes over all tasks and keeps their results.  Imports no torch."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import msgspec

from opcheck.common.errors import InputError, OpcheckError
from opcheck.common.tool import TOOL
from opcheck.data.device_evidence import Evidence, Machine, Result, Settings
from opcheck.numerics.probe.child import COMMAND, Child
from opcheck.numerics.probe.records import Ready, Setup, Task

#: seconds between two times that what there is so far is handed on
_KEEP = 20.0


def probe(
    setup: Setup,
    settings: Settings,
    *,
    before: Evidence | None = None,
    limit: int = 0,
    jobs: int = 1,
    progress: Callable[[str], None] | None = None,
    keep: Callable[[Evidence], None] | None = None,
    command: Sequence[str] = COMMAND,
) -> Evidence:
    """What the device does with PyTorch's operator database.

    Args:
        setup: the device, and which operators and dtypes.
        settings: how they are run.
        before: results of an earlier run, which are not made again.
        limit: at most so many tasks; 0: all.
        jobs: processes at once.
        progress: told how far it is.
        keep: handed the evidence every few seconds, so that little is lost.
        command: the probing process.

    Raises:
        UsageError: this machine has no such device, or a pattern matches nothing.
        InputError: ``before`` is of another machine, torch, device or settings.
        CaptureError: there is no database, or the process ends before its first task.
    """
    environment = {
        **os.environ,
        "PYTORCH_ENABLE_MPS_FALLBACK": "1" if settings.cpu_fallback else "0",
    }

    def child() -> Child:
        return Child(setup, settings.seconds, environment, command)

    with child() as first:
        ready = first.start()
        _refuse_other(before, ready.machine, settings)
        run = _Run(ready, settings, before, limit)
        threads = [
            threading.Thread(target=run.work, args=(child,), daemon=True) for _ in range(jobs - 1)
        ]
        for thread in threads:
            thread.start()
        try:
            run.follow(first, progress, keep)
        except BaseException:
            run.stop()
            raise
        for thread in threads:
            thread.join()
    if run.failure is not None:
        raise run.failure
    return run.evidence(complete=True)


class _Run:
    """The tasks, and what came of them."""

    def __init__(
        self, ready: Ready, settings: Settings, before: Evidence | None, limit: int
    ) -> None:
        self._machine = ready.machine
        self._settings = settings
        self._made = before.made if before else f"{datetime.now(timezone.utc):%Y-%m-%d}"
        self._found: dict[tuple[str, str, str], Result] = {
            result.key: result for result in (before.results if before else ())
        }
        left = [task for task in ready.tasks if task.key not in self._found]
        self._total = min(limit, len(left)) if limit else len(left)
        self._complete = self._total == len(left)
        self._queue: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in left[: self._total]:
            self._queue.put(task)
        self._done = 0
        self.failure: OpcheckError | None = None
        self._stopped = False
        self._children: list[Child] = []

    def evidence(self, *, complete: bool) -> Evidence:
        """What there is so far."""
        return Evidence(
            tool=TOOL,
            made=self._made,
            machine=self._machine,
            settings=self._settings,
            complete=complete and self._complete,
            results=tuple(self._found[key] for key in sorted(self._found)),
        )

    def follow(
        self,
        child: Child,
        progress: Callable[[str], None] | None,
        keep: Callable[[Evidence], None] | None,
    ) -> None:
        """Work, and say how far all are."""
        last = time.monotonic()
        for task in iter(self._next, None):
            if progress is not None:
                progress(f"{self._done} of {self._total}: {task.opinfo}, {task.dtype}")
            self._take(child, task)
            if keep is not None and time.monotonic() - last > _KEEP:
                keep(self.evidence(complete=False))
                last = time.monotonic()

    def stop(self) -> None:
        """Begin no task any more, and end those that run."""
        self._stopped = True
        for child in tuple(self._children):
            child.kill()

    def work(self, start: Callable[[], Child]) -> None:
        """Work in another process."""
        try:
            with start() as child:
                self._children.append(child)
                for task in iter(self._next, None):
                    self._take(child, task)
        except OpcheckError as error:
            self.failure = error

    def _next(self) -> Task | None:
        try:
            return None if self.failure or self._stopped else self._queue.get_nowait()
        except queue.Empty:
            return None

    def _take(self, child: Child, task: Task) -> None:
        self._found[task.key] = child.run(task)
        self._done += 1


def _refuse_other(before: Evidence | None, machine: Machine, settings: Settings) -> None:
    """Results of two machines never stand in one file."""
    if before is None:
        return
    own = {**msgspec.to_builtins(machine), **msgspec.to_builtins(settings)}
    theirs = {**msgspec.to_builtins(before.machine), **msgspec.to_builtins(before.settings)}
    texts = [
        f"{name} {theirs[name]}, here {own[name]}" for name in own if own[name] != theirs[name]
    ]
    if texts:
        raise InputError(
            f"the evidence is of another run: {'; '.join(texts[:3])}",
            context="--resume",
            hint="name another file with --output",
        )
