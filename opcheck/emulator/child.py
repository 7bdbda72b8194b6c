"""The child process of ``opcheck run``: ``python -m opcheck.emulator.child REQUEST`` is the program.

Its arguments, working directory, path, standard streams and ``__main__`` are what python would give it.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
import types
from pathlib import Path

import msgspec

from opcheck.capture import installed
from opcheck.capture.protocol import Failure
from opcheck.emulator.request import Outcome, RunRequest
from opcheck.errors import CaptureError

#: torch's own files that stand between the program and the emulation, and between its parts.
_OVERRIDES = str(Path("torch", "overrides.py"))
_BETWEEN = (
    str(Path("torch", "_ops.py")),
    str(Path("torch", "utils", "_python_dispatch.py")),
    runpy.__file__,
)
_OWN = str(Path(__file__).parents[1]) + os.sep


def main() -> int:
    """Run the program of the request, and leave an Outcome where it asks for one; the program's exit code."""
    # Two programs would want this name: the user's is the one.
    request = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RunRequest)
    # TorchScript asks C++ for the device, which says ``cpu``: it runs as the Python that it was made from.
    os.environ.setdefault("PYTORCH_JIT", "0")
    os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1" if request.cpu_fallback else "0"
    _prepare(request)
    try:
        installed.require()
    except CaptureError as error:
        failure = Failure(
            error=CaptureError.__name__,
            message=error.message,
            context=error.context,
            hint=error.hint,
        )
        Path(request.answer).write_bytes(msgspec.json.encode(failure))
        return CaptureError.exit_code

    from opcheck.capture.audio import prepare_torchaudio  # noqa: PLC0415  (torch: seconds)
    from opcheck.capture.vision import prepare_torchvision  # noqa: PLC0415  (torch: seconds)
    from opcheck.emulator.errors import ProcessAbortedError  # noqa: PLC0415
    from opcheck.emulator.session import Emulation, target_of  # noqa: PLC0415
    from opcheck.oplists.registrations import load  # noqa: PLC0415

    prepare_torchvision()
    prepare_torchaudio()
    lists = load()
    target = target_of(request.torch, request.macos, fallback=request.cpu_fallback, lists=lists)
    name = " ".join((request.program, *request.arguments))
    run = Emulation(target, lists, name)
    code = 0
    own = os.getpid()
    with run.running():
        try:
            _run(request)
        except SystemExit as error:
            code = _code(error)
            if code:
                run.broke_off(error)
        except KeyboardInterrupt as error:
            run.broke_off(error)
            code = 128 + signal.SIGINT
        except ProcessAbortedError as error:
            run.broke_off(error)
            code = 128 + signal.SIGABRT
            sys.stderr.write(f"{error}\nopcheck: a Mac ends the process here (abort)\n")
        except BaseException as error:  # noqa: BLE001 - the program's
            run.broke_off(error)
            code = 1
            _print(error)
        if os.getpid() != own:
            # A process that the program forked came out here.
            os._exit(code)
        # What the program registered runs on its Mac too.
        atexit._run_exitfuncs()
    outcome = Outcome(report=run.report, exit_code=code)
    Path(request.answer).write_bytes(msgspec.json.encode(outcome))
    return code


def _prepare(request: RunRequest) -> None:
    """What ``python script.py`` and ``python -m module`` set up."""
    if request.is_module:
        sys.argv = ["-m", *request.arguments]
        sys.path[0] = os.getcwd()  # noqa: PTH109  (as python does)
    else:
        sys.argv = [request.program, *request.arguments]
        sys.path[0] = str(Path(request.program).resolve().parent)


def _run(request: RunRequest) -> None:
    if request.is_module:
        runpy.run_module(request.program, run_name="__main__", alter_sys=True)
        return
    path = Path(request.program)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=request.program, __builtins__=__builtins__, __cached__=None)
    # Not runpy.run_path: it takes __main__ away again, and what is pickled at exit needs it.
    sys.modules["__main__"] = module
    code = compile(path.read_bytes(), request.program, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is what it is for


def _code(error: SystemExit) -> int:
    """As python: None is 0, a text is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    sys.stderr.write(f"{error.code}\n")
    return 1


def _print(error: BaseException) -> None:
    """The traceback of the program, without the frames of the emulation."""
    trace = _without_own(error)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _without_own(error: BaseException) -> types.TracebackType | None:
    for other in (error.__cause__, error.__context__):
        if other is not None and other.__traceback__ is not None:
            other.with_traceback(_without_own(other))
    frames: list[types.TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.endswith(_OVERRIDES) and frames:
            # The function that asks whether it is overridden, and is then called as if it had not been asked.
            frames.pop()
        elif not file.startswith((_OWN, "<frozen runpy>")) and not file.endswith(_BETWEEN):
            frames.append(trace)
        trace = trace.tb_next
    chain = None
    for one in reversed(frames):
        chain = types.TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
