"""Runs the OpInfos of PyTorch's operator database on the device, and answers the probing process's requests."""

import functools
import itertools
import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec.structs import replace

from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.globs import fits
from opcheck.data.device_evidence import Outcome, Result
from opcheck.data.messages import fallback_warning
from opcheck.device.here import VARIABLE
from opcheck.device.observe.child.planted import stand_in_device
from opcheck.features.probe.probe_messages import ProbeDone, ProbeTask, ProbeTrial, Ready, Setup
from opcheck.numerics.child import installed_devices
from opcheck.numerics.child.kept_tensors import place
from opcheck.numerics.child.line_tally import finite_digits
from opcheck.numerics.compare.child.call_results import specs
from opcheck.numerics.compare.child.compare_mode import ComparedCall, CompareMode
from opcheck.numerics.compare.child.device_run import full_precision
from opcheck.tracing.torch_private.export import operator_database
from opcheck.tracing.torch_private.trees import tensors, tree_map
from opcheck.worker.protocol import Say


class OpInfoSample(NamedTuple):
    """The arguments of one call of an OpInfo."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def database() -> dict[str, Any]:
    """Return the OpInfos of the installed torch by their names.

    Raises:
        CaptureError: a package that the database needs is not installed.
    """
    try:
        ops = operator_database()
    except ImportError as error:
        problem = f"PyTorch's operator database cannot be imported: {' '.join(str(error).split())}"
        where = f"torch.testing._internal of torch {torch.__version__}"
        raise CaptureError(problem, context=where, hint="pip install 'opcheck[probe]'") from error
    return {name(op): op for op in ops}


def name(op: Any) -> str:
    """Return ``name`` or ``name/variant``."""
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else str(op.name)


def tasks(ops: Mapping[str, Any], setup: Setup, device: torch.device) -> Iterator[ProbeTask]:
    """Yield what there is to do, by dtype, then by name: the first of them are of every kind.

    An OpInfo is run with the dtypes that it declares for the CPU or for the device; of another it has no samples.

    Raises:
        UsageError: a pattern matches no OpInfo.
    """
    for pattern in setup.patterns:
        if not any(fits(op, pattern) for op in ops):
            where = f"--op; torch {torch.__version__} has {len(ops)}"
            hint = "a pattern as of a shell: --op 'nn.functional.*pool*'"
            raise UsageError(f"no OpInfo is named {pattern!r}", context=where, hint=hint)
    wanted = setup.patterns or ("*",)
    chosen = [op for op in sorted(ops) if any(fits(op, pattern) for pattern in wanted)]
    for phase in setup.phases:
        for dtype in setup.dtypes:
            number = getattr(torch, dtype)
            for op in chosen:
                if number in _declared_dtypes(ops[op], device, gradient=phase == "gradient"):
                    yield ProbeTask(opinfo=op, dtype=dtype, phase=phase)


def samples_of(op: Any, task: ProbeTask, limit: int) -> list[OpInfoSample]:
    """Return the first samples, on the CPU."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the generator that OpInfo draws from
    torch.manual_seed(0)
    dtype, grad = getattr(torch, task.dtype), task.phase == "gradient"
    made = op.sample_inputs("cpu", dtype, requires_grad=grad)
    return [OpInfoSample((sample.input, *sample.args), dict(sample.kwargs)) for sample in itertools.islice(made, limit)]


def on_device(op: Any, sample: OpInfoSample, device: torch.device) -> OpInfoSample:
    """Return the sample on the device: its tensors with their strides, and what names a device."""
    # test/test_mps.py: tensor_split takes its indices from the CPU alone.
    stays = sample.args[1:2] if op.name == "tensor_split" else ()

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if any(value is stay for stay in stays) else place(value, device)
        return device if isinstance(value, torch.device) else value

    args, kwargs = tree_map(move, tuple(sample))
    if isinstance(kwargs.get("device"), str):
        kwargs["device"] = device
    return OpInfoSample(args, kwargs)


def _declared_dtypes(op: Any, device: torch.device, *, gradient: bool) -> set[torch.dtype]:
    if not gradient:
        return {*op.supported_dtypes("cpu"), *op.supported_dtypes(device.type)}
    if not op.supports_autograd:
        return set()
    return {*op.supported_backward_dtypes("cpu"), *op.supported_backward_dtypes(device.type)}


#: The warnings of torch when it computes on the CPU: for an operator without a kernel, and inside of a kernel.
_FALLS_BACK = re.compile(re.escape(fallback_warning("@")).replace("@", "(?P<op>[^']+)", 1))
_INSIDE = re.compile(r"(?i)\bfall(?:s|ing)? back (?:on|to)(?: run on)? (?:the )?CPU")

#: The worst of several calls of one overload, the worst first.
_STATES = ("wrong", "loose", "agrees", "not compared")
#: The outcome of several samples, the most telling first.
_ORDER: tuple[Outcome, ...] = ("wrong", "raises", "falls back", "works", "not compared")
#: characters of a text that are kept
_TEXT = 2000


class _SampleOutcomes:
    """The outcomes of the calls of one sample."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self.wrong: ComparedCall | None = None
        #: why the first call that was not compared was not
        self.reason = ""
        self.error = -1.0

    def add(self, judged: ComparedCall) -> None:
        """Count one call."""
        op = judged.op
        self.calls[op] = min(self.calls.get(op, judged.outcome), judged.outcome, key=_STATES.index)
        self.reason = self.reason or judged.reason
        if judged.outcome != "not compared":
            self.error = max(self.error, judged.worst.error)
        if judged.outcome == "wrong":
            self.wrong = self.wrong or judged


def probe(op: Any, task: ProbeTask, device: torch.device, limit: int) -> Result:
    """Return the result of one OpInfo: its first samples, each call compared with float64."""
    start = functools.partial(Result, opinfo=task.opinfo, dtype=task.dtype, phase=task.phase)
    try:
        samples = samples_of(op, task, limit)
    except Exception as error:  # noqa: BLE001 - torch's samples, of dtypes that the CPU may not have
        return start(outcome="not judged", samples=0, text=f"no samples: {_describe(error)}")
    start = functools.partial(start, samples=1)
    tried = [_try(op, task, sample, device, start) for sample in samples]
    results = [result for result in tried if result is not None]
    if not results:
        return start(outcome="not judged", samples=0)
    worst = min(results, key=lambda result: _ORDER.index(result.outcome))
    calls: dict[str, str] = {}
    for result in results:
        for name, state in result.calls.items():
            calls[name] = min(calls.get(name, state), state, key=_STATES.index)
    errors = [result.error for result in results if result.error is not None]
    bad = worst.outcome in {"wrong", "raises", "falls back"}
    endless = worst.outcome == "wrong" and worst.error is None
    return replace(
        worst,
        samples=len(results),
        failed=sum(result.outcome == worst.outcome for result in results) if bad else 0,
        error=None if endless else max(errors, default=None),
        calls=dict(sorted(calls.items())),
    )


def _try(
    op: Any, task: ProbeTask, sample: OpInfoSample, device: torch.device, start: Callable[..., Result]
) -> Result | None:
    """Return the result of one sample; None where the CPU does not run it."""
    seen = _SampleOutcomes()
    mode = CompareMode(device, seen.add, views=True)
    raised: Exception | None = None
    with warnings.catch_warnings(record=True) as warned, full_precision():
        warnings.simplefilter("always")
        try:
            moved = on_device(op, sample, device)
            with mode:
                _call_sample(op, task, moved)
        except Exception as error:  # noqa: BLE001 - whatever the device's kernels raise
            raised = error
    if raised is not None and not _runs_on_cpu(op, task, sample):
        return None
    if seen.wrong is not None:
        return _wrong(seen.wrong, functools.partial(start, calls=seen.calls))
    largest = finite_digits(seen.error) if seen.error >= 0 else None
    start = functools.partial(start, calls=seen.calls, error=largest)
    if raised is not None:
        return start(outcome="raises", op=mode.running, text=_describe(raised))
    for warning in warned:
        text = str(warning.message)
        match = _FALLS_BACK.search(text)
        if match or _INSIDE.search(text):
            return start(outcome="falls back", op=match["op"] if match else "", text=text[:_TEXT])
    if set(seen.calls.values()) <= {"not compared"}:
        return start(outcome="not compared", text=seen.reason)
    return start(outcome="works")


def _wrong(judged: ComparedCall, start: Callable[..., Result]) -> Result:
    worst = judged.worst
    cpu = "" if judged.cpu is None else f"; the CPU in the same dtype {judged.cpu:.2g}"
    return start(
        outcome="wrong",
        op=judged.op,
        text=f"{worst.kind}: result {judged.output} at {list(worst.element)} is {worst.found}, "
        f"exact {worst.exact}; {worst.error:.2g} tolerances{cpu}",
        inputs=specs(judged.call.args, judged.call.kwargs),
        error=finite_digits(worst.error),
    )


def _call_sample(op: Any, task: ProbeTask, sample: OpInfoSample) -> None:
    out = op(*sample.args, **sample.kwargs)
    if task.phase == "forward":
        return
    # A gradient that comes in in a sparse layout ends the process in torch 2.13, on the CPU, too.
    outputs = [tensor for tensor in tensors(out) if tensor.requires_grad and tensor.layout == torch.strided]
    inputs = [each for each in tensors(tuple(sample)) if each.requires_grad and each.is_leaf]
    if outputs and inputs:
        # The gradients come from outside, so that no reduction of ours is among the calls.
        gradients = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


def _runs_on_cpu(op: Any, task: ProbeTask, sample: OpInfoSample) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _call_sample(op, task, sample)
    except Exception:  # noqa: BLE001 - then the sample shows nothing about the device
        return False
    return True


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_TEXT]


def answer(request: Setup | ProbeTrial, _say: Say) -> Ready | ProbeDone:
    """List the tasks of a setup, or do a task.

    Raises:
        UsageError: this machine has no such device, or a pattern matches nothing.
        CaptureError: there is no database, or the probe itself broke off.
    """
    setup = request if isinstance(request, Setup) else request.setup
    database()
    # An emulated Mac where OPCHECK_TEST_MAC names one (device/here.py).
    stand_in = os.environ.get(VARIABLE, "").rpartition("=")[2] if setup.device == "mps" else ""
    with stand_in_device(stand_in):
        return _answer(request, setup)


def _answer(request: Setup | ProbeTrial, setup: Setup) -> Ready | ProbeDone:
    device, ops = _prepare(setup)
    if isinstance(request, Setup):
        return Ready(machine=installed_devices.machine(device), tasks=tuple(tasks(ops, request, device)))
    task = request.task
    try:
        return ProbeDone(result=probe(ops[task.opinfo], task, device, request.setup.samples))
    except Exception as error:  # what the device's kernels raise is a result
        problem = f"the probe itself broke off: {type(error).__name__}: {error}"
        hint = "this is a bug in opcheck; --op leaves the OpInfo out"
        raise CaptureError(problem, context=", ".join(task.key), hint=hint) from error


@functools.lru_cache(maxsize=1)
def _prepare(setup: Setup) -> tuple[torch.device, dict[str, Any]]:
    device = installed_devices.require(setup.device)
    torch.set_num_threads(1)
    # Otherwise only the first fallback of a process is warned of.
    torch.set_warn_always(True)
    return device, database()
