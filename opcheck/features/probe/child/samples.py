"""Selects the tasks in PyTorch's operator database, and makes its samples on the device."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.globs import fits
from opcheck.features.probe.records import ProbeTask, Setup
from opcheck.numerics.child.kept_tensors import place
from opcheck.tracing.torch_private.testing import operator_database
from opcheck.tracing.torch_private.trees import tree_map

if TYPE_CHECKING:
    from collections.abc import Mapping


class OpInfoSample(NamedTuple):
    """The arguments of one call of an OpInfo."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def database() -> dict[str, Any]:
    """Return the OpInfos of the installed torch by their names.

    Raises:
        CaptureError: what the database needs beside torch is not installed.
    """
    try:
        ops = operator_database()
    except ImportError as error:
        raise CaptureError(
            f"PyTorch's operator database cannot be imported: {' '.join(str(error).split())}",
            context=f"torch.testing._internal of torch {torch.__version__}",
            hint="pip install 'opcheck[probe]'",
        ) from error
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
            raise UsageError(
                f"no OpInfo is named {pattern!r}",
                context=f"--op; torch {torch.__version__} has {len(ops)}",
                hint="a pattern as of a shell: --op 'nn.functional.*pool*'",
            )
    chosen = [
        op
        for op in sorted(ops)
        if not setup.patterns or any(fits(op, pattern) for pattern in setup.patterns)
    ]
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
    made = op.sample_inputs(
        "cpu", getattr(torch, task.dtype), requires_grad=task.phase == "gradient"
    )
    return [
        OpInfoSample((sample.input, *sample.args), dict(sample.kwargs))
        for sample in itertools.islice(made, limit)
    ]


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
