"""The child process of ``opcheck run --emulate``, which becomes the user's program.

Its arguments, working directory, path, standard streams and ``__main__`` are what python would give
it.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.errors import CaptureError
from opcheck.device.emulator import program
from opcheck.device.emulator.request import Outcome, RunRequest
from opcheck.worker import installed
from opcheck.worker.platform import ABORTED, INTERRUPTED
from opcheck.worker.protocol import failure_of


def main(file: Path) -> int:
    """Run the requested program, write its Outcome where the request asks for one, return its exit code."""
    # Two programs would want this name: the user's is the one.
    request = msgspec.json.decode(documents.read(file), type=RunRequest)
    # TorchScript asks C++ for the device, which says ``cpu``: it runs as the Python that it was
    # made from.
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1" if request.cpu_fallback else "0"
    try:
        installed.require()
    except CaptureError as error:
        failure = failure_of(error, request.program)
        Path(request.answer).write_bytes(msgspec.json.encode(failure))
        return CaptureError.exit_code

    from opcheck.data import targets
    from opcheck.data.registrations import load
    from opcheck.device.emulator.errors import ProcessAbortedError
    from opcheck.device.emulator.session import Emulation

    _prepare_libraries()
    lists = load()
    target = targets.target(request.torch, request.macos, lists, fallback=request.cpu_fallback)
    if request.strict:
        warnings.filterwarnings("error", message=program.FALLBACK_WARNING)
    name = " ".join((request.program, *request.arguments))
    run = Emulation(target, lists, name)
    program.prepare(request.program, request.arguments, is_module=request.is_module)
    code = 0
    own = os.getpid()
    watched = program.Watched(run.read_variables)
    with run.running(), watched.watching():
        try:
            program.execute(request.program, is_module=request.is_module)
            run.came_to_its_end(watched.cause)
        except SystemExit as error:
            code = program.code_of(error)
            run.broke_off(error) if code else run.came_to_its_end(watched.cause)
        except KeyboardInterrupt as error:
            run.broke_off(error)
            code = INTERRUPTED
        except ProcessAbortedError as error:
            run.broke_off(error)
            code = ABORTED
            sys.stderr.write(f"{error}\nopcheck: a Mac ends the process here (abort)\n")
        except BaseException as error:  # noqa: BLE001 - the program's
            run.broke_off(error)
            code = 1
            program.print_error(error, whole=run.ended_by_limit)
        if os.getpid() != own:
            # A process that the program forked came out here.
            os._exit(code)
        # What the program registered runs on its Mac too.
        atexit._run_exitfuncs()
    outcome = Outcome(report=run.report, exit_code=code)
    Path(request.answer).write_bytes(msgspec.json.encode(outcome))
    return code


def _prepare_libraries() -> None:
    """Let libraries be imported whose compiled part does not load here."""
    from opcheck.capture.extensions.audio import prepare_torchaudio
    from opcheck.capture.extensions.vision import prepare_torchvision
    from opcheck.device.emulator import vision_kernels

    if prepare_torchvision():
        vision_kernels.install()
    prepare_torchaudio()
