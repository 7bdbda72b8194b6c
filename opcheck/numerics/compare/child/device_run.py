"""Runs a model on a device, and each call in float64, too.  User code runs here, in the child process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opcheck.capture.child.run import leave_uncompiled
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import UsageError
from opcheck.common.picking import pick
from opcheck.numerics.child import installed_devices
from opcheck.numerics.child.model_run import ModelRun, build_model, describe_break
from opcheck.numerics.compare import comparison_records
from opcheck.numerics.compare.child import reproducer
from opcheck.numerics.compare.child.call_results import Clock, CompareTally
from opcheck.numerics.compare.child.compare_mode import CompareMode
from opcheck.numerics.compare.comparison_records import ComparePlan, CompareRequest, DeviceComparison, Reproducer
from opcheck.tracing.torch_private.trees import tree_map_only
from opcheck.worker.platform import stop_time_limit
from opcheck.worker.protocol import Say

_FULL = "products in full precision: TF32 and sums in half precision were turned off"
_ALONE = "each call was made again from the device's own inputs: what one call loses is not held against the next"
_RANDOM = "random numbers of two devices differ: calls that draw them were not compared"


def answer(request: CompareRequest, say: Say) -> DeviceComparison:
    """Return the outcome of ``compare`` to the parent of this process."""
    return compare(request.capture, request.plan, say)


def compare(request: CaptureRequest, plan: ComparePlan, say: Say) -> DeviceComparison:
    """Return the model of the request on the device of the plan.

    Raises:
        UsageError: there is no such device.
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
        CaptureError: the run broke off before its first call on the device.
    """
    device = installed_devices.require(plan.device)
    model, inputs = build_model(request, say)
    say(f"running on {device} and in float64 on the CPU")
    on_device = _DeviceRun(device, Clock(device, plan.times) if plan.times else None)
    with leave_uncompiled([]), full_precision(), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        on_device(model, inputs.args, inputs.kwargs, request)
    stop_time_limit()
    machine = installed_devices.machine(device)
    tally, mode = on_device.tally, on_device.mode
    return DeviceComparison(
        machine=machine,
        **pick(request, "model", "mode"),
        dtype=request.dtype or _dtype(model),
        inputs=inputs.specs,
        inputs_note=inputs.note,
        loss=on_device.run.loss,
        calls=tally.calls,
        outcomes=dict(tally.outcomes),
        **pick(mode, "elsewhere", "views"),
        wrong=tuple(tally.wrong()),
        operators=tuple(tally.operators()),
        times=tuple(on_device.clock.records()) if on_device.clock else (),
        reproducer=_reproducer(tally, machine, plan.repro),
        tolerances=dict(comparison_records.TOLERANCES),
        complete=not on_device.problem,
        problem=on_device.problem,
        notes=(_ALONE, _FULL, _RANDOM),
    )


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Switch off the short cuts that a device may take by default: cuDNN's convolutions in TF32."""
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    names = ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    values = [getattr(products, name) for name in names]
    for name in names:
        setattr(products, name, False)
    try:
        # PyTorch's tests forbid setting a flag of cuDNN by itself (torch/backends/__init__.py).
        with cudnn.flags(
            enabled=cudnn.enabled, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False
        ):
            yield
    finally:
        for name, value in zip(names, values, strict=True):
            setattr(products, name, value)


class _DeviceRun:
    """One run on a device."""

    def __init__(self, device: torch.device, clock: Clock | None) -> None:
        self.device = device
        self.clock = clock
        self.run = ModelRun()
        self.tally = CompareTally(self.run.sites)
        self.mode = CompareMode(device, self.tally.add, clock.time if clock else None)
        self.problem = ""

    def __call__(self, model: nn.Module, args: Any, kwargs: Any, request: CaptureRequest) -> None:
        train = request.mode == "train"
        doing = "moving the model"
        try:
            model.to(self.device)
            args, kwargs = tree_map_only(torch.Tensor, self._move, (args, kwargs))
            doing = "the run"
            self.run(model, args, kwargs, self.mode, train=train, grad=train or request.grad)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - user code: anything, SystemExit included
            self.problem = describe_break(
                error,
                request.model,
                op=self.mode.running,
                calls=self.tally.calls,
                doing=f"{doing} on {self.device}",
                hint="it has to run there to be compared; give smaller inputs with --input, or a "
                "smaller model with --config",
            )

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self.device).requires_grad_(tensor.requires_grad)


def _dtype(model: nn.Module) -> str:
    dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    return ", ".join(sorted(dtypes))


def _reproducer(tally: CompareTally, machine: Any, folder: str) -> Reproducer | None:
    if tally.first is None:
        return None
    if not folder:
        return Reproducer(state=comparison_records.NOT_WRITTEN, detail="--repro DIR writes it")
    try:
        reproducer.write(tally.first, machine, Path(folder))
    except UsageError as error:
        return Reproducer(state=comparison_records.NOT_WRITTEN, detail=f"{error.message} ({error.context})")
    # Until the parent has run it.
    return Reproducer(path=folder, state=comparison_records.SHOWS_NOT, detail="it was not run")
