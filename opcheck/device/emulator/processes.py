"""Starts the program's processes as a Mac does: by spawn, each of them on the emulated Mac.

A spawned process imports the program's main module again as ``__mp_main__``, and gets its target and arguments by
pickle: Python does both here, too.  Each process leaves a ``ProcessReport`` in the run's folder.
"""

import contextlib
import dis
import multiprocessing
import os
import secrets
import sys
import traceback
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from multiprocessing import queues, spawn
from pathlib import Path
from typing import Any

import msgspec

from opcheck.common.documents import DocumentError, from_json, read
from opcheck.common.replacing import replace_attributes
from opcheck.common.text import error_chain, error_text
from opcheck.device.emulator.emulation_request import PROCESSES, ProcessReport
from opcheck.simulator.visible import start_methods
from opcheck.worker import platform, process

#: A pool replaces its workers without end where none can start (multiprocessing/pool.py, ``_maintain_pool``).
_HOPELESS = 6
_CONTAINERS = frozenset({dict, list, set, defaultdict, OrderedDict})
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
        #: called with the exception of a queue's thread; True: whatever waits for the item waits without end
        self.at_not_sent: Callable[[BaseException], bool] = lambda _error: False
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
            not_sent(error, item)
            if self.at_not_sent(error):
                self._interrupt_once()

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
        main = vars(sys.modules["__main__"])
        write(file, ProcessReport(lost=True, main_globals=tuple(name for name in [*main] if _has_value(main, name))))
        program = _CHILD.format(str(self._request), str(file), f"**{handles!r}")
        return process.python("-c", program, "--multiprocessing-fork")

    def _interrupt_once(self) -> None:
        """End the program, which this process is, or which started it."""
        program = multiprocessing.parent_process() or multiprocessing.current_process()
        with contextlib.suppress(OSError):  # another process did, or the run has ended
            (self._folder / "interrupted").touch(exist_ok=False)
            if program.pid in {os.getpid(), os.getppid()}:  # it lives
                platform.interrupt_main_thread(program.pid)

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
        return [read_report(file) for file in sorted(self._folder.glob("*.json"))]

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


def read_report(file: Path) -> ProcessReport:
    """Return what a process left; what cannot be read is lost."""
    try:
        return from_json(read(file), ProcessReport)
    except DocumentError:
        return ProcessReport(lost=True)


@contextlib.contextmanager
def note_sent_errors(note: Callable[[BaseException], None], *carriers: Any) -> Iterator[None]:
    """For the length of the block, call ``note`` with each error that a pool's or a loader's process sends on.

    Args:
        note: is called in the process.
        carriers: more classes whose objects are made where an error is sent.
    """
    from concurrent.futures import process as executor
    from multiprocessing import pool

    def make_change(carrier: Any) -> tuple[Any, str, Any]:
        original = carrier.__init__

        def send(*arguments: Any, **options: Any) -> None:
            if (error := sys.exc_info()[1]) is not None:
                note(error)
            original(*arguments, **options)

        return carrier, "__init__", send

    own = (vars(pool)["ExceptionWithTraceback"], vars(executor)["_ExceptionWithTraceback"])
    with replace_attributes([make_change(carrier) for carrier in (*own, *carriers)]):
        yield


def _has_value(module: Mapping[str, Any], name: str) -> bool:
    value = module.get(name)
    # Of a class of the program's, the truth may be its code.
    return value is not None and (type(value) not in _CONTAINERS or bool(value))


def find_lacking_global(error: BaseException, main_globals: Collection[str]) -> str:
    """Return the global whose lack raised an error in a spawned process; empty where another cause is possible.

    The main module of the process lacks it, or has it without a value, and that of the program has a value.
    """
    for earlier in error_chain(error):
        frames = [frame for frame, _ in traceback.walk_tb(earlier.__traceback__)]
        module = frames[-1].f_globals if frames else {}
        if module.get("__name__") != "__mp_main__":
            continue
        steps = dis.get_instructions(frames[-1].f_code)
        names = {str(step.argval) for step in steps if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}}
        for name in sorted(names.intersection(main_globals)):
            if not _has_value(module, name) and _is_due_to(earlier, module, name):
                return name
    return ""


def _is_due_to(error: BaseException, module: Mapping[str, Any], name: str) -> bool:
    if name not in module:
        return isinstance(error, NameError) and f"'{name}'" in error_text(error)
    return "NoneType" in error_text(error) if module[name] is None else isinstance(error, LookupError)
