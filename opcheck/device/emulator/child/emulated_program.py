"""The child process of ``opcheck run --emulate``, which becomes the user's program.

Its arguments, working directory, path, standard streams and ``__main__`` are what python would give
it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opcheck.common import documents
from opcheck.common.replacing import replace_attributes
from opcheck.device.emulator import user_program
from opcheck.device.emulator.emulation_request import ProcessReport, RunOutcome, RunRequest
from opcheck.device.emulator.processes import Processes, note_sent_errors, read_report, write
from opcheck.simulator.errors import ProcessAbortedError
from opcheck.simulator.visible.start_methods import mark_not_spawned
from opcheck.worker import environments, platform
from opcheck.worker.platform import ABORTED, INTERRUPTED
from opcheck.worker.protocol import WorkFailure, failure_of, seal

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from opcheck.device.emulator.child.session import Emulation

#: The program may have put a pipe in the place of the file, whose opening would wait, or a link to another file.
_IN_PLACE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)

_NO_REPORT = (
    "opcheck cannot report what the program did",
    "a program that damages the Python of its own process leaves no report; if yours does not, please report it",
)


def main(file: Path) -> int:
    """Run the requested program, write its Outcome where the request names a file, return its exit code."""
    # The user's program has this name.
    request = msgspec.json.decode(documents.read(file), type=RunRequest)
    # The program can read the file, and its processes do.
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(request, secret="")))
    process = os.getpid()
    try:
        return _run(request, file)
    except BaseException as error:
        # The program may have changed any name that opcheck's own code here uses.
        if os.getpid() == process and type(error) is not KeyboardInterrupt:
            _write(request, failure_of(error, request.program, *_NO_REPORT))
        raise


def _run(request: RunRequest, file: Path) -> int:
    os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1" if request.cpu_fallback else "0"
    environments.require()

    run = _emulation(request)
    user_program.prepare(request.program, request.arguments, is_module=request.is_module)

    def leave_what_was_seen(number: int) -> None:
        run.broke_off(platform.SignalledError(number))
        _write(request, RunOutcome(report=run.report, exit_code=128 + number))

    processes = Processes(file, run.give_up_starting)
    run.follow(processes)
    code = 0
    own = os.getpid()
    with (
        run.running(),
        processes.started_as_on_a_mac(),
        user_program.first_import_seen(run.read_variables) as imports_torch,
        platform.before_ending(leave_what_was_seen),
    ):
        try:
            user_program.execute(request.program, is_module=request.is_module)
            run.came_to_its_end(imports_torch=imports_torch())
        except SystemExit as error:
            code = user_program.code_of(error)
            run.broke_off(error) if code else run.came_to_its_end(imports_torch=imports_torch())
        except KeyboardInterrupt as error:
            run.broke_off(error)
            code = INTERRUPTED
        except ProcessAbortedError as error:
            run.broke_off(error)
            code = ABORTED
            sys.stderr.write(f"{error}\nopcheck: a Mac ends the process here (abort)\n")
        except BaseException as error:  # the program's
            run.broke_off(error)
            code = 1
            user_program.print_error(error, whole=run.ended_by_limit)
        if os.getpid() != own:
            # A process that the program forked came out here.
            os._exit(code)
        # Python's own order: threads end first (those of executors end their processes), then what the program
        # registered runs.
        vars(threading)["_shutdown"]()
        atexit._run_exitfuncs()
    _write(request, RunOutcome(report=run.report, exit_code=code))
    return code


def _write(request: RunRequest, outcome: RunOutcome | WorkFailure) -> None:
    content = seal(outcome, request.secret)
    # In place: the disk may be full, and this file has its space; the program may have removed it.
    with contextlib.suppress(OSError), os.fdopen(os.open(request.answer, _IN_PLACE), "wb") as file:
        file.write(content)
        file.truncate()


def run_spawned(request: str, report: str, **handles: Any) -> None:
    """Be a process that the program spawned: what ``multiprocessing.spawn.spawn_main`` is to Python.

    Args:
        request: the file of the program's RunRequest.
        report: the file where the process leaves its ProcessReport.
        handles: what Python gives to ``spawn_main``.
    """
    from multiprocessing import process, spawn

    from opcheck.capture.child import endings
    from opcheck.tracing.torch_private.tensors import sent_error

    file = Path(report)
    run = _emulation(msgspec.json.decode(documents.read(request), type=RunRequest))
    run.read_variables()
    processes = Processes(Path(request))
    run.follow(processes, is_main=False)
    note_lacking = functools.partial(run.note_lacking, read_report(file).main_globals)
    bootstrap: Any = vars(process.BaseProcess)["_bootstrap"]

    def leave(_number: int = 0) -> None:
        write(file, run.process_report())

    run.leave = leave

    def follow_start(started: BaseProcess, *arguments: Any) -> int:
        write(file, ProcessReport(started=True, lost=True))
        body = started.run

        def run_body() -> None:
            try:
                body()
            except ProcessAbortedError as error:
                run.broke_off(error)
                leave()
                sys.stderr.write(f"{error}\nopcheck: a Mac ends the process here (abort)\n")
                os.abort()
            except BaseException as error:
                note_lacking(error)
                # Of its own exceptions the program learns as on every system.
                run.broke_off(error, only_macs=True)
                raise

        started.run = run_body  # type: ignore[method-assign]
        code: int = bootstrap(started, *arguments)
        return code

    code = 1
    with (
        run.running(),
        processes.started_as_on_a_mac(),
        replace_attributes([(process.BaseProcess, "_bootstrap", follow_start)]),
        note_sent_errors(note_lacking, sent_error),
        platform.before_ending(leave),
    ):
        try:
            spawn.spawn_main(**handles)
        except SystemExit as error:
            code = user_program.code_of(error)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException as error:  # what the program's main module raised, or pickle
            if not endings.is_limit(error):
                mark_not_spawned(error)
            run.broke_off(error)
            user_program.print_error(error)
        leave()  # inside: a pool terminates its processes, and the signal would end this one
    sys.exit(code)


def _emulation(request: RunRequest) -> Emulation:
    # Let libraries be imported whose compiled part does not load here.
    from opcheck.capture.child.extensions import prepare_torchaudio, prepare_torchvision
    from opcheck.data import targets
    from opcheck.data.registrations import load
    from opcheck.device.emulator.child import vision_kernels
    from opcheck.device.emulator.child.session import Emulation

    if prepare_torchvision():
        vision_kernels.install()
    prepare_torchaudio()
    lists = load()
    target = targets.target(request.torch, request.macos, lists, fallback=request.cpu_fallback)
    if request.strict:
        warnings.filterwarnings("error", message=user_program.FALLBACK_WARNING)
    return Emulation(target, lists, " ".join((request.program, *request.arguments)), request.kernels)
