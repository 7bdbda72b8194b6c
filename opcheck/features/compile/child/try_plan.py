"""Loads a model with its weights and tries each variant of a plan on it.  In the child process."""

import builtins
import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from opcheck.capture.child.inputs.specs import inputs_for
from opcheck.capture.child.loading.fixed_programs import find_fixed, refuse_fixed
from opcheck.capture.child.loading.load import load
from opcheck.capture.child.run import AsModule
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import InputError, ModelLoadError, UnsupportedTorchError
from opcheck.common.files import write_text
from opcheck.common.replacing import replace_attributes
from opcheck.common.text import filesize
from opcheck.common.versions import Version
from opcheck.data.wheels.inductor import BACKEND
from opcheck.features.compile import compile_records as records
from opcheck.features.compile import metal_runner
from opcheck.features.compile.child import inductor_metal, variants
from opcheck.features.compile.compile_process import REST, includes
from opcheck.simulator.real_device import hide_device
from opcheck.tracing.source_locations import is_own_code
from opcheck.tracing.torch_private import compilation
from opcheck.worker import platform
from opcheck.worker.protocol import Say
from opcheck.worker.worker import WorkerError, run_forked

#: The most bytes of weights in float32: copies in float64 and gradients take more memory.
LIMIT = 4 << 30


def answer(request: records.CompileRequest, say: Say) -> records.CompiledVariants:
    """Return the outcome of ``run`` to the parent of this process; the program runs on the CPU, on a Mac too."""
    with hide_device():
        return run(request.capture, request.plan, say)


def run(request: CaptureRequest, plan: records.CompilePlan, say: Say) -> records.CompiledVariants:
    """Try every variant of the plan.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, none could be derived, or the model is too large to be run.
    """
    if plan.scratch:
        # A variant that is killed leaves half a library where Inductor finds it again, in the user's own runs, too
        # (torch/_inductor/runtime/cache_dir_utils.py reads the variable at each compilation).
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(plan.scratch) / "inductor")
    unusable = _use_backend(plan)
    say(f"loading {request.model}")
    with mps_read_as(plan.device):
        _refuse_if_large(request)
        loaded = load(request.model, request.config, real=True, repository=request.repository)
    plan, untrained = _without_training(plan, _module(loaded.model), request.model)
    train = any(variant.training for variant in plan.variants)
    inputs = inputs_for(loaded, request.inputs, train=train)
    program = variants.ProgramCall(_module(loaded.model), inputs.args, inputs.kwargs)
    platform.stop_time_limit()  # each variant has its own
    say("preparing Inductor", seconds=REST + len(plan.variants) * plan.seconds)
    # Looking for the backends imports Dynamo, which every fork then has.
    known = tuple(sorted(compilation.backends(exclude_tags=())))
    lacking = unusable or compilation.missing_for_metal()
    if plan.device == "cpu" and not lacking:
        inductor_metal.preload()
    run_metal = any(variant.run_metal for variant in plan.variants)
    if run_metal:
        metal_runner.prepare(plan.scratch, includes(plan.backend))
    compiled = records.CompiledVariants(
        model=request.model,
        installed_torch=str(torch.__version__),
        metal_backend="" if unusable else plan.backend_release,
        device=plan.device,
        inputs=inputs.specs,
        inputs_note=inputs.note,
        backends=known,
        not_checked=(*untrained, *((metal_runner.NOT_PROVEN,) if run_metal else ())),
    )
    for number, variant in enumerate(plan.variants, 1):
        say(f"{number} of {len(plan.variants)}: {variant}, {variant.dtype}, {variant.run}")
        tried = _refuse(variant, known, lacking) or _try(program, variant, plan)
        compiled = replace(compiled, tried=(*compiled.tried, tried))
        if plan.scratch:
            # The parent reads it where this process is ended.
            write_text(Path(plan.scratch) / records.TRIED, msgspec.json.encode(compiled).decode())
    return compiled


def _use_backend(plan: records.CompilePlan) -> str:
    """Let Inductor write Metal as the target does; return why it cannot."""
    # With --exact the installed torch is the target's.
    release = plan.backend_release
    if plan.backend and Version.parse(str(torch.__version__)) != Version.parse(release):
        try:
            compilation.use_metal_backend(Path(plan.backend) / BACKEND)
        except UnsupportedTorchError as error:
            return f"the Metal backend of torch {release} does not work with it: {error.message}"
    return ""


def _without_training(
    plan: records.CompilePlan, model: torch.nn.Module, name: str
) -> tuple[records.CompilePlan, tuple[str, ...]]:
    """Return the plan without its training steps for a program that has none, and what is left out.

    Raises:
        ModelLoadError: only training is requested.
    """
    kind = find_fixed(model)
    trainable = any(parameter.requires_grad for parameter in model.parameters())
    left = tuple(variant for variant in plan.variants if not variant.training)
    if (trainable and not kind) or len(left) == len(plan.variants):
        return plan, ()
    if not left:
        refuse_fixed(model, name)
        problem = "no parameter of the model requires a gradient: there is nothing to train"
        hint = "compile it for inference: --mode inference"
        raise ModelLoadError(problem, context=f"model {name}", hint=hint)
    why = f"the model is fixed for inference ({kind})" if kind else ""
    reason = f"training: {why or 'no parameter requires a gradient'}"
    return replace(plan, variants=left), (reason,)


def _module(model: Callable[..., Any]) -> torch.nn.Module:
    return model if isinstance(model, torch.nn.Module) else AsModule(model)


def _refuse(variant: records.Variant, known: Sequence[str], lacking: str) -> records.TriedVariant | None:
    """Return what needs no trying: a backend that this torch has not, and Metal where a private name is gone."""
    release = str(torch.__version__).partition("+")[0]
    if variant.metal and lacking:
        message = f"not checked on torch {release}: {lacking}"
        failure = records.CompileFailure(kind="harness", message=message, ours=True)
        return records.TriedVariant(variant=variant, outcome="could not tell", failure=failure)
    if variant.backend in known or variant.backend == records.AOTINDUCTOR:
        return None
    why = f"torch {release} has no backend {variant.backend!r}"
    if variant.backend == "mps":
        why = (
            "there is no backend of that name: move the model to mps; inductor generates Metal there, "
            "aot_eager runs eagerly"
        )
    usual = [name for name in records.PORTABLE if name in known]
    names = ", ".join(dict.fromkeys([*usual, *compilation.backends()]))
    failure = records.CompileFailure(kind="backend", message=f"{why}; it has {names}")
    return records.TriedVariant(variant=variant, outcome="no such backend", failure=failure)


def _try(program: variants.ProgramCall, variant: records.Variant, plan: records.CompilePlan) -> records.TriedVariant:
    if not platform.CAN_FORK:  # each variant has a process of its own then
        return variants.attempt(program, variant, plan.device)
    try:
        return run_forked(lambda: variants.attempt(program, variant, plan.device), records.TriedVariant, plan.seconds)
    except WorkerError as error:
        late = error.kind == "late"
        more = " (--timeout raises the limit)" if late else ""
        kind = "timeout" if late else "died"
        failure = records.CompileFailure(kind=kind, message=f"the process {error}{more}")
        outcome = "too long" if late else "died"
        return records.TriedVariant(variant=variant, outcome=outcome, failure=failure)


def _refuse_if_large(request: CaptureRequest) -> None:
    """Look at the sizes before any weight takes memory."""
    model = load(request.model, request.config, repository=request.repository).model
    if not isinstance(model, torch.nn.Module):
        return
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    if size > LIMIT:
        problem = f"the model is too large to be run here: {filesize(size)} of weights in float32"
        hint = "compile a smaller model of the same kind: --config num_hidden_layers=2"
        raise InputError(problem, context=request.model, hint=hint)


#: With its number, for a number of the CPU is another device to Dynamo.
_MPS = re.compile(r"mps(:\d+)?")


@contextlib.contextmanager
def mps_read_as(device: str) -> Iterator[None]:
    """Read the text ``mps`` as ``device`` in each of the program's own files that Python loads inside the block.

    The graphs are moved to mps later.  A test such as ``x.device.type == "mps"`` is true as on a Mac, since
    both sides are the device of this machine.  Files of installed libraries stay as they are.

    Args:
        device: ``cpu`` or ``cuda``.
    """

    def reading(original: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            code = original(*args, **kwargs)
            own = isinstance(code, CodeType) and is_own_code(code.co_filename)
            return _rename_device(code, device) if own else code

        return read

    # compile() is what notebooks and scripts go through; a module may come from its cached byte code.
    changes = [
        (SourceFileLoader, "get_code", reading(SourceFileLoader.get_code)),
        (builtins, "compile", reading(builtins.compile)),
    ]
    with replace_attributes(changes):
        yield


def _rename_device(value: Any, device: str) -> Any:
    """Return a constant of a code object, or the object, with the name replaced in all its constants."""
    if isinstance(value, str):
        return device if _MPS.fullmatch(value) else value
    if isinstance(value, (tuple, frozenset)):
        return type(value)(_rename_device(item, device) for item in value)
    if isinstance(value, CodeType):
        return value.replace(co_consts=_rename_device(value.co_consts, device))
    return value
