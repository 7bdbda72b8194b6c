"""The server process of a worker, which imports the libraries once and forks for each model and mode.

A fork takes some 50 ms where an import takes 20 s.  A model that hangs, takes all memory or ends
its process ends a fork; a model that ends the process that forked it ends this process, and its
worker starts it again.  Where a process cannot be copied, each model and mode has a server of its own.
"""

import functools
import gc
import importlib
import sys
import traceback

from opcheck.capture.child.baseline_run import plain
from opcheck.capture.child.extensions import prepare_torchvision
from opcheck.capture.child.loading.libraries import find
from opcheck.capture.child.run import run
from opcheck.capture.request import MODES, CaptureRequest
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.data.registrations import load
from opcheck.features.sweep import measure
from opcheck.features.sweep.sweep_records import (
    LIBRARIES,
    Control,
    EndedProcess,
    Measure,
    MeasuredResult,
    PlainRun,
    Prepare,
    Reply,
)
from opcheck.simulator.real_device import out_of_reach
from opcheck.simulator.visible.public_names import names_of_the_target
from opcheck.simulator.visible.surface import mps_backend
from opcheck.worker import environments, platform
from opcheck.worker.protocol import Say, silent
from opcheck.worker.worker import WorkerError, run_forked

#: Seconds that a fork gets beyond the limit that it keeps itself.
_GRACE = 15.0
#: Seconds that a model may take without opcheck.
_CONTROL = 60.0


def answer(request: Prepare | Measure | Control, say: Say) -> Reply:
    """Import what all models need, or run a model in a fork: its result, or how the fork ended."""
    if isinstance(request, Prepare):
        platform.adopt_orphans()
        prepare()
        warm()
        settle()
        return PlainRun(text="")
    if isinstance(request, Control):
        model, seconds, newest = request.model, _CONTROL, None
    else:
        model, seconds = request.task.model, request.task.seconds
        newest = max(request.task.targets, key=lambda target: (target.torch, target.macos))
    _import_for(model.library, model.spec.partition(":")[2], newest)
    # The worker ends this process when this time is over: a model may have stopped it, and the fork's limit with it.
    say("running the model", seconds=seconds + _GRACE)
    if not platform.CAN_FORK:
        return _reply(request)
    others = {*platform.children_of_this_process()}
    try:
        return run_forked(lambda: _reply(request), Reply, seconds + _GRACE, quiet=True)
    except WorkerError as error:
        if error.kind == "late":
            return EndedProcess(problem="hung", how=f"was ended after {seconds:g} s without a sign")
        last = f"; it printed last: {error.printed}" if error.printed else ""
        return EndedProcess(problem="died", how=f"{error}{last}")
    finally:
        platform.end_orphans(others)


def _import_for(library: str, name: str, target: Target | None) -> None:
    try:
        preload(library, name, target)
    except BaseException:  # noqa: BLE001 - the fork meets it again, and reports it
        traceback.print_exc()
    _collect(library)
    gc.freeze()


@functools.cache
def _collect(_library: str) -> None:
    """Collect the garbage that a library's import has left, once."""
    gc.collect()


def _reply(request: Measure | Control) -> Reply:
    """Run the model in the fork, within the requested limits."""
    if platform.CAN_FORK:
        platform.confine_signals()
    if isinstance(request, Measure):
        platform.limit_memory(int(request.task.memory * 1e9))
        return MeasuredResult(result=measure.result(request.task, request.mode, load()))
    platform.limit_memory(int(request.memory * 1e9))
    capture = CaptureRequest(
        model=request.model.spec,
        torch="",
        macos="",
        inputs=request.model.inputs,
        config=request.config,
        mode=request.mode,
    )
    return PlainRun(text=plain(capture, build_only=request.stage == "load"))


#: transformers checks once, at import: whether there is an MPS device.
_MACOS = Version(MACOS_MAJORS[-1])


def prepare() -> None:
    """Import torch, read the op lists, declare torchvision's operators.

    Raises:
        CaptureError: torch is not installed, or too old.
    """
    environments.require()
    load()
    prepare_torchvision()
    # No model needs it, and a torchaudio for another torch stops the import of transformers.
    sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]


def preload(library: str, name: str = "", target: Target | None = None) -> None:
    """Import a library and what it needs for the class of this name, so that forked children have it.

    Args:
        library: the library; any other package is left to the children.
        name: the class.
        target: the Mac that the library sees; children for targets that give its questions other answers need a
            process of their own.  None: the newest release.

    Raises:
        ModelLoadError: it is not installed, or cannot be imported.
    """
    if library not in LIBRARIES:
        return
    target = target or Target(torch=Version.parse(load().releases[-1].line), macos=_MACOS)
    with out_of_reach(), mps_backend(target), names_of_the_target():
        module = find(library, f"{library}:{name}")
        getattr(module, name, None)


def warm() -> None:
    """Run some layers in both modes, so that torch imports and initialises what it loads on first use."""
    importlib.import_module("torch._dynamo")  # else each child would import it for itself
    lists = load()
    for mode in MODES:
        run(
            CaptureRequest(
                model="torch.nn:TransformerEncoderLayer",
                torch=lists.releases[-1].line,
                macos=str(_MACOS),
                config={"d_model": 8, "nhead": 2},
                inputs=("2x4x8:float32",),
                mode=mode,
            ),
            silent,
        )


def settle() -> None:
    """Exclude present objects from garbage collection, so that children neither scan nor copy them."""
    gc.collect()
    gc.freeze()
