"""Computes an operation of one operand on mps, and judges it as the runner judges the released kernel.

``python -m opcheck.features.observe_all.child.kernel_here OPERATION KERNEL_RUN STAND_IN ANSWER``: KERNEL_RUN is what
``opcheck kernels test`` wrote of the operation; ANSWER gets the rows as JSON.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch

from opcheck.common import documents
from opcheck.device.observation_store import HostRow
from opcheck.device.observe.child.planted import stand_in_device
from opcheck.kernels import judging, pointwise, reference, values
from opcheck.kernels.kernel_records import KernelRun

#: By the verdict on the released kernel, what is predicted of the device.
_PREDICTED = {"right": "right", "within": "right", "wrong": "wrong"}


def rows(operation: str, run: KernelRun, stand_in: str) -> Iterator[HostRow]:
    """Yield a row for each dtype whose kernel was run: the kernel here, and the same operator on the device."""
    kernels = [each for each in run.outcomes if each.operation == operation]
    for dtype in ("float32", "float16"):
        verdicts = {each.verdict for each in kernels if each.dtypes and {*each.dtypes} == {dtype}}
        predicted = {_PREDICTED.get(verdict, "unknown") for verdict in verdicts} or {"unknown"}
        observed, text = _observe(operation, getattr(torch, dtype), stand_in)
        claim = min(predicted) if len(predicted) == 1 else "unknown"
        yield HostRow(
            subject=operation, op=f"kernel {operation}", dtypes=(dtype,), predicted=claim, observed=observed, text=text
        )


def _observe(operation: str, dtype: torch.dtype, stand_in: str) -> tuple[str, str]:
    """Return whether the device computes the operation right, and the simplest wrong result."""
    if (function := reference.function(operation)) is None:
        return "unknown", ""
    operand = values.single(dtype)
    expected = pointwise.expect(operation, (operand,), ())
    try:
        with stand_in_device(stand_in):
            got = function(operand.to("mps")).cpu()
    except (RuntimeError, TypeError) as error:
        return "unsupported", " ".join(str(error).split())[:200]
    judged = judging.judge(expected, got, reference.allowed_units(operation, dtype))
    sample = judged.smallest
    text = f"{', '.join(sample.inputs)} gives {sample.result}, right {sample.expected}" if sample else ""
    return ("wrong" if judged.wrong else "right"), text


def main(operation: str, run: str, stand_in: str, answer: str) -> None:
    """Write the rows of an operation."""
    read = msgspec.json.decode(documents.read(Path(run)), type=KernelRun)
    Path(answer).write_bytes(msgspec.json.encode([*rows(operation, read, stand_in)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
