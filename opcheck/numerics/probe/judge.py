"""Runs one OpInfo with one dtype on the device, and says what happened."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch

from opcheck.data.device_evidence import Outcome, Result
from opcheck.data.messages import fallback_warning
from opcheck.numerics.compare.compare_mode import CompareMode, Judged
from opcheck.numerics.compare.run import full_precision
from opcheck.numerics.compare.tally import specs
from opcheck.numerics.probe.records import Task
from opcheck.numerics.probe.samples import Sample, on_device, samples_of
from opcheck.numerics.tally import finite_digits
from opcheck.tracing.nested_tensors import tensors

#: What torch says when it computes on the CPU: for an operator without a kernel, and inside of a kernel.
_FALLS_BACK = re.compile(re.escape(fallback_warning("@")).replace("@", "(?P<op>[^']+)", 1))
_INSIDE = re.compile(r"(?i)\bfall(?:s|ing)? back (?:on|to)(?: run on)? (?:the )?CPU")

#: The worst of several calls of one overload, the worst first.
_STATES = ("wrong", "loose", "agrees", "not compared")
#: The outcome of several samples, the most telling first.
_ORDER: tuple[Outcome, ...] = ("wrong", "raises", "falls back", "works", "not compared")
#: characters of a text that are kept
_TEXT = 2000


class _Seen:
    """What the calls of one sample came to."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self.wrong: Judged | None = None
        #: why the first call that was not compared was not
        self.reason = ""
        self.error = -1.0

    def add(self, judged: Judged) -> None:
        """Count one call."""
        op = judged.op
        before = self.calls.get(op, judged.outcome)
        self.calls[op] = min(before, judged.outcome, key=_STATES.index)
        self.reason = self.reason or judged.reason
        if judged.outcome != "not compared":
            self.error = max(self.error, judged.worst.error)
        if judged.outcome == "wrong":
            self.wrong = self.wrong or judged


def probe(op: Any, task: Task, device: torch.device, limit: int) -> Result:
    """The samples of one OpInfo, each call held against float64."""
    try:
        samples = samples_of(op, task, limit)
    except Exception as error:  # noqa: BLE001 - torch's samples, of dtypes that the CPU may not have
        return _result(task, "not judged", 0, text=f"no samples: {_said(error)}")
    results = [one for one in (_one(op, task, sample, device) for sample in samples) if one]
    if not results:
        return _result(task, "not judged", 0)
    outcome = min((one.outcome for one in results), key=_ORDER.index)
    first = next(one for one in results if one.outcome == outcome)
    calls: dict[str, str] = {}
    for result in results:
        for name, state in result.calls.items():
            calls[name] = min(calls.get(name, state), state, key=_STATES.index)
    errors = [one.error for one in results if one.error is not None]
    bad = outcome in {"wrong", "raises", "falls back"}
    return Result(
        opinfo=task.opinfo,
        dtype=task.dtype,
        phase=task.phase,
        outcome=outcome,
        samples=len(results),
        failed=sum(one.outcome == outcome for one in results) if bad else 0,
        op=first.op,
        text=first.text,
        inputs=first.inputs,
        error=None if outcome == "wrong" and first.error is None else max(errors, default=None),
        calls=dict(sorted(calls.items())),
    )


def _one(op: Any, task: Task, sample: Sample, device: torch.device) -> Result | None:
    """One sample; None where the CPU does not run it."""
    seen = _Seen()
    mode = CompareMode(device, seen.add, views=True)
    raised: Exception | None = None
    with warnings.catch_warnings(record=True) as warned, full_precision():
        warnings.simplefilter("always")
        try:
            moved = on_device(op, sample, device)
            with mode:
                _run(op, task, moved)
        except Exception as problem:  # noqa: BLE001 - whatever the device's kernels raise
            raised = problem
    if raised is not None and not _runs_on_cpu(op, task, sample):
        return None
    error = finite_digits(seen.error) if seen.error >= 0 else None
    if seen.wrong is not None:
        return _wrong(task, seen, seen.wrong)
    if raised is not None:
        return _result(
            task, "raises", 1, op=mode.running, text=_said(raised), error=error, calls=seen.calls
        )
    for warning in warned:
        text = str(warning.message)
        match = _FALLS_BACK.search(text)
        if match or _INSIDE.search(text):
            name = match["op"] if match else ""
            return _result(
                task, "falls back", 1, op=name, text=text[:_TEXT], error=error, calls=seen.calls
            )
    compared = set(seen.calls.values()) - {"not compared"}
    if not compared:
        return _result(task, "not compared", 1, text=seen.reason, calls=seen.calls)
    return _result(task, "works", 1, error=error, calls=seen.calls)


def _wrong(task: Task, seen: _Seen, judged: Judged) -> Result:
    worst = judged.worst
    cpu = "" if judged.cpu is None else f"; the CPU in the same dtype {judged.cpu:.2g}"
    return _result(
        task,
        "wrong",
        1,
        op=judged.op,
        text=f"{worst.kind}: result {judged.output} at {list(worst.element)} is {worst.found}, "
        f"exact {worst.exact}; {worst.error:.2g} tolerances{cpu}",
        inputs=specs(judged.call.args, judged.call.kwargs),
        error=finite_digits(worst.error),
        calls=seen.calls,
    )


def _result(task: Task, outcome: Outcome, samples: int, **more: Any) -> Result:
    return Result(
        opinfo=task.opinfo,
        dtype=task.dtype,
        phase=task.phase,
        outcome=outcome,
        samples=samples,
        **more,
    )


def _run(op: Any, task: Task, sample: Sample) -> None:
    out = op(*sample.args, **sample.kwargs)
    if task.phase == "forward":
        return
    # A gradient that comes in in a sparse layout ends the process in torch 2.13, on the CPU, too.
    outputs = [
        tensor for tensor in tensors(out) if tensor.requires_grad and tensor.layout == torch.strided
    ]
    inputs = [
        tensor for tensor in tensors(tuple(sample)) if tensor.requires_grad and tensor.is_leaf
    ]
    if outputs and inputs:
        # The gradients come from outside, so that no reduction of ours is among the calls.
        gradients = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


def _runs_on_cpu(op: Any, task: Task, sample: Sample) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(op, task, sample)
    except Exception:  # noqa: BLE001 - then it says nothing of the device
        return False
    return True


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_TEXT]
