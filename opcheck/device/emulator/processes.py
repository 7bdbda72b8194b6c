"""Starts the program's processes as a Mac does: by spawn, each of them on the emulated Mac.

A spawned process imports the program's main module again as ``__mp_main__``, and gets its target and arguments by
pickle: Python does both here, too.  Each process leaves a ``ProcessReport`` in the run's folder.
"""

import contextlib
import multiprocessing
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from multiprocessing import queues, spawn
from pathlib import Path
from typing import Any

import msgspec

from opcheck.common.documents import DocumentError, from_json, read
from opcheck.common.replacing import replace_attributes
from opcheck.device.emulator.emulation_request import PROCESSES, ProcessReport
from opcheck.simulator.visible import start_methods
from opcheck.worker import platform, process

#: A pool replaces its workers without end where none can start (multiprocessing/pool.py, ``_maintain_pool``).
_HOPELESS = 6
_PYTHONS = ("python", "torchrun", "accelerate")
_CHILD = "from opcheck.device.emulator.child.emulated_program import run_spawned; run_spawned({!r}, {!r}, {})"


class Processes:
    """The processes of one run.

    Args:
        request: the file of the RunRequest; its folder is the run's.
        at_hopeless: called once where the program starts processes again and again, and none can start.
    """

    def __init__(self, request: Path, at_hopeless: Callable[[], None] = lambda: None) -> None:
        self._request = request
        self._folder = request.with_name(PROCESSES)
        self._folder.mkdir(exist_ok=True)
        self._at_hopeless = at_hopeless
        #: called with the exception of a queue's thread
        self.at_not_sent: Callable[[BaseException], None] = lambda _error: None
        self._unfollowed: list[str] = []
        self._is_any_started = False
        #: a process was started in another way than by spawn
        self.is_any_unemulated = False
        self._watching = False

    @contextlib.contextmanager
    def started_as_on_a_mac(self) -> Iterator[None]:
        """For the length of the block, spawn is the default, and what is spawned is emulated."""
        not_sent = queues.Queue.__dict__["_on_queue_feeder_error"].__func__

        def note_not_sent(error: BaseException, item: Any) -> None:
            self.at_not_sent(error)
            not_sent(error, item)

        changes = [
            (queues.Queue, "_on_queue_feeder_error", staticmethod(note_not_sent)),
            (spawn, "get_command_line", self._command),
            *start_methods.default_method(multiprocessing.get_context("spawn")),
            *start_methods.noted_launches(),
        ]
        if sys.platform != "win32":
            from multiprocessing import context, popen_spawn_posix

            # A process of the fork server imports and unpickles as a spawned one does; the server is not emulated.
            server: Any = context.ForkServerProcess
            changes += [(server, "_Popen", staticmethod(popen_spawn_posix.Popen))]
        self._watching = True
        sys.addaudithook(self._see)  # Python cannot remove an audit hook
        try:
            with replace_attributes(changes):
                yield
        finally:
            self._watching = False

    def _command(self, **handles: Any) -> list[str]:
        """Return the command of a spawned process, in place of ``multiprocessing.spawn.get_command_line``."""
        if not self._is_any_started:
            reports = self.reports()
            self._is_any_started = any(report.started for report in reports)
            if not self._is_any_started and sum(not report.lost for report in reports) == _HOPELESS:
                self._at_hopeless()
        file = self._folder / f"{secrets.token_hex(8)}.json"
        write(file, ProcessReport(lost=True))
        program = _CHILD.format(str(self._request), str(file), f"**{handles!r}")
        return process.python("-c", program, "--multiprocessing-fork")

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching or event not in platform.START_EVENTS:
            return
        self.is_any_unemulated = True
        if not arguments:
            return
        words = arguments[1] if len(arguments) > 1 and arguments[1] else arguments[0]
        words = words if isinstance(words, (list, tuple)) else str(words).split()
        name = os.path.basename(os.fsdecode(words[0])) if words else ""  # noqa: PTH119  (any text)
        if name.startswith(_PYTHONS):
            self._unfollowed.append(name)

    # -- what they did -----------------------------------------------------------------------------

    def reports(self) -> list[ProcessReport]:
        """Return what each process left so far."""
        return [_read(file) for file in sorted(self._folder.glob("*.json"))]

    @property
    def unfollowed(self) -> int:
        """How many programs of Python the program started without an emulation."""
        # loky forks and calls exec by itself, without multiprocessing.
        loky = any(name.endswith("loky.backend.popen_loky_posix") for name in sys.modules)
        return len(self._unfollowed) + loky

    def note_use_in_fork(self) -> None:
        """Leave the report of a forked process that comes to the device."""
        write(self._folder / f"{os.getpid()}.json", ProcessReport(started=True, forked=True))


def write(file: Path, report: ProcessReport) -> None:
    """Write a report, whole or not at all."""
    part = file.with_suffix(".part")
    with contextlib.suppress(OSError):  # the run has ended, and its folder is gone
        part.write_bytes(msgspec.json.encode(report))
        part.replace(file)


def _read(file: Path) -> ProcessReport:
    try:
        return from_json(read(file), ProcessReport)
    except DocumentError:
        return ProcessReport(lost=True)
