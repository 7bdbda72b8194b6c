"""The child process of ``opcheck run`` on a Mac, which becomes the user's program, observed.

Its environment was set before this process began, so that torch reads it when it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opcheck.common import documents
from opcheck.common.errors import CaptureError
from opcheck.common.text import error_text, error_type
from opcheck.device.emulator import user_program
from opcheck.device.observe.recording import End, ObserveRequest, Start
from opcheck.worker.platform import INTERRUPTED
from opcheck.worker.protocol import WorkFailure

if TYPE_CHECKING:
    from opcheck.device.observe.child.mac_recorder import MacRecorder

_STDERR = 2


def main(file: Path) -> int:
    """Run the program of the request in the file and write what it does, line by line; the program's exit code."""
    request = msgspec.json.decode(documents.read(file), type=ObserveRequest)
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(request, secret="")))

    import torch

    from opcheck.device.observe.child.mac_recorder import MacRecorder, lines_to

    write = lines_to(request.answer, request.secret)
    if not request.stand_in and not torch.backends.mps.is_available():
        write(_no_device(str(torch.__version__)))
        return CaptureError.exit_code
    # TORCH_WARN_ONCE of MPSFallback.mm then warns each time.
    torch.set_warn_always(True)
    warnings.filterwarnings("error" if request.strict else "always", message=user_program.FALLBACK_WARNING)
    recorder = MacRecorder(write, mark=_STDERR)
    write(_start(str(torch.__version__), request))
    own = os.getpid()
    user_program.prepare(request.program, request.arguments, is_module=request.is_module)
    with _device(request), recorder.recording():
        end = _run(request, recorder)
        if os.getpid() != own:
            # A process that the program forked came out here.
            os._exit(end.exit_code)
        atexit._run_exitfuncs()
    write(msgspec.structs.replace(end, counts=dict(recorder.counts), warned=recorder.warned))
    return end.exit_code


def _run(request: ObserveRequest, recorder: MacRecorder) -> End:
    try:
        user_program.execute(request.program, is_module=request.is_module)
    except SystemExit as error:
        return End(exit_code=user_program.code_of(error))
    except KeyboardInterrupt as error:
        return _end(error, INTERRUPTED, recorder)
    except BaseException as error:  # the program's
        user_program.print_error(error)
        return _end(error, 1, recorder)
    return End(exit_code=0)


def _end(error: BaseException, code: int, recorder: MacRecorder) -> End:
    from opcheck.tracing.source_locations import locate, raising_site

    row = recorder.raised[0] if recorder.raised and recorder.raised[1] is error else 0
    return End(
        exit_code=code,
        error=error_type(error),
        message=error_text(error),
        location=locate(raising_site(error)),
        row=row,
    )


def _device(request: ObserveRequest) -> contextlib.AbstractContextManager[None]:
    """The machine's own device; to test the observation, an emulated Mac in its place."""
    if not request.stand_in:
        return contextlib.nullcontext()
    from opcheck.device.observe.child.planted import stand_in_device

    return stand_in_device(request.kernels or request.stand_in, cpu_fallback=request.cpu_fallback)


def _start(torch: str, request: ObserveRequest) -> Start:
    if request.stand_in:
        return Start(torch=torch, macos=request.stand_in.partition("/")[2], machine="emulated")
    chip = _ask_tool("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return Start(torch=torch, macos=platform.mac_ver()[0], machine=chip, build=_ask_tool("sw_vers", "-buildVersion"))


def _ask_tool(*command: str) -> str:
    """What a tool of macOS prints; empty where there is none."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _no_device(torch: str) -> WorkFailure:
    return WorkFailure(
        error=CaptureError.__name__,
        message=f"torch {torch} finds no MPS device here",
        context=f"{platform.system()} {platform.mac_ver()[0] or platform.release()}, {platform.machine()}",
        hint="opcheck run --emulate runs the program on an emulated Mac; opcheck doctor finds the cause",
    )
