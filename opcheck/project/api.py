"""The Python API: ``opcheck.audit``.  Its import takes no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from opcheck.capture.request import DEFAULT_OPTIMIZER, MODES, CaptureRequest
from opcheck.common.errors import UsageError
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import load
from opcheck.judge.pipeline import asked_report
from opcheck.judge.pipeline import audit as audit_request
from opcheck.model.records import Report


def audit(
    model: str | Callable[..., Any],
    inputs: Any = None,
    *,
    torch: str | None = None,
    macos: str | None = None,
    fallback: bool = False,
    mode: Mode = MODES[0],
    optimizer: str = DEFAULT_OPTIMIZER,
    autocast: str = "",
    dtype: str = "",
    grad: bool = False,
    config: Mapping[str, Any] | None = None,
    memory: int = 0,
    time_limit: float = 300.0,
) -> Report:
    """What each operator call of a model does on a Mac's GPU; nothing is observed on a Mac.

    A model's name is loaded in a process of its own, as ``opcheck audit`` does.  A module or a function is run as it
    is here, in eval mode for inference and in train mode for a training step, in a fork: neither it nor its tensors
    change, and no random number is drawn here.  What it decided when it was built (whether there is an MPS device) is
    as this machine said.

    Args:
        model: a name as on the command line (``transformers:BertModel``, ``file.py:attribute``), or a module or a
            function of tensors, whose tensors are on the CPU or on the meta device.
        inputs: of a name, texts such as ``1x3x224x224:float32``; else a tuple of arguments, a mapping of keyword
            arguments, or the only argument.  None: those that the model comes with, or derived ones.
        torch: the release, as ``2.13``; the newest in the lists if not given.
        macos: the Mac's macOS, as ``15``; the newest known if not given.
        fallback: PYTORCH_ENABLE_MPS_FALLBACK=1 is set on it.
        mode: ``inference``, or ``train`` for one training step.
        optimizer: of a training step: a class of torch.optim and its arguments, as ``sgd:momentum=0.9``.
        autocast: dtype of torch.autocast; empty: none.
        dtype: what floating parameters and inputs are cast to; empty leaves them.
        grad: record inference with grad mode on.
        config: of a name: keyword arguments of the library's configuration, of the class or of the function.
        memory: of the Mac that it should fit, in GB; 0: none in particular.
        time_limit: seconds that the run may take.

    Raises:
        UsageError: an argument that is none of those.
        UnknownTargetError: there is no list for that release, or it does not run on that macOS.
        ModelLoadError, InputError: the model or its inputs cannot be loaded, or are on a GPU of this machine.
        CaptureError: the process of the run ended, or took too long.
    """
    lists = load()
    known = tuple(Version.parse(release.line) for release in lists.releases)
    line = parse_torch(torch, known) if torch else max(known)
    minimum = Version.parse(lists.release(str(line)).minimum_macos)
    target = Target(
        torch=line,
        macos=parse_macos(macos or str(MACOS_MAJORS[-1]), minimum, line),
        cpu_fallback=fallback,
    )
    if mode not in MODES:
        raise UsageError(
            f"there is no mode {mode!r}", context="opcheck.audit", hint=f"one of {', '.join(MODES)}"
        )
    request = CaptureRequest(
        model=model if isinstance(model, str) else _name(model),
        torch=str(line),
        macos=str(target.macos),
        cpu_fallback=fallback,
        config=dict(config or {}),
        mode=mode,
        optimizer=optimizer,
        autocast=autocast,
        dtype=dtype,
        grad=grad,
        time_limit=time_limit,
    )
    if isinstance(model, str):
        return audit_request(_with_texts(request, inputs), lists, mac=memory)
    _check(request, model)
    from opcheck.capture.live import capture_live  # noqa: PLC0415  (torch)

    trace = capture_live(request, model, inputs)
    return asked_report(request, trace, target, lists, mac=memory)


def _check(request: CaptureRequest, model: object) -> None:
    if request.config or not callable(model):
        raise UsageError(
            "a configuration goes with a model's name alone"
            if callable(model)
            else f"{type(model).__name__} is no kind of model",
            context=f"opcheck.audit, {request.model}",
            hint="give a name, a module, or a function of tensors",
        )


def _with_texts(request: CaptureRequest, inputs: Any) -> CaptureRequest:
    texts = (inputs,) if isinstance(inputs, str) else tuple(inputs or ())
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(
            "the inputs of a model that is named are texts",
            context=f"opcheck.audit, {request.model}",
            hint="such as 1x3x224x224:float32; or give the module itself with its tensors",
        )
    return msgspec.structs.replace(request, inputs=texts)


def _name(model: object) -> str:
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{kind.__module__}.{getattr(kind, '__qualname__', '')}"
