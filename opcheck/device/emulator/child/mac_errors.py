"""The errors and warnings that a program sees on an emulated Mac.

Verdicts have the errors of the target. Where the CPU's kernel, which computes in place of MPS's, raises an error, the
program gets the error that a Mac raises, as far as it is known.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from opcheck.capture.child.endings import EXCEPTIONS
from opcheck.common.versions import Target, Version
from opcheck.data import messages
from opcheck.data.messages import FIELD
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.data.tables import nowhere, refused_by
from opcheck.device.emulator.child.argument_checks import CHECKS
from opcheck.model.records import OpCall, Verdict
from opcheck.simulator.dispatch.routes import end_of
from opcheck.simulator.errors import NotSimulatedError

# -- errors and warnings of the target -------------------------------------------------------------

#: The types of refusals that the simulation finds (torch/csrc/utils/tensor_numpy.cpp, MPSStream.mm); others are
#: RuntimeErrors.
_REFUSALS: dict[str, type[Exception]] = {
    "numpy": TypeError,
    "index_out_of_range": torch.AcceleratorError,
}


class ProcessAbortedError(BaseException):
    """A failed assertion in Metal ends the process of a Mac here.

    It is no Exception, so that no program catches it.
    """


def error_of(
    verdict: Verdict, call: OpCall, target: Target, lists: OpLists
) -> BaseException | None:
    """Return what the target raises; None where the call runs, or its verdict is unknown."""
    if verdict.status == "fallback" and verdict.kind == "env" and not target.cpu_fallback:
        return NotImplementedError(verdict.prints)
    # A dtype that no backend computes: the CPU is tried, for the text that all backends share.
    if verdict.status != "unsupported" or any(item.kind == "measured" for item in verdict.evidence):
        return None
    if call.refusal is not None:
        return _REFUSALS.get(call.refusal[0], RuntimeError)(verdict.prints)
    statement = _deciding_statement(verdict, lists)
    if statement is None:
        # There is no kernel for MPS, and with the fallback variable none for the CPU.
        unknown = f"{call.op}: {verdict.because} [the Mac's own text is not known]"
        return NotImplementedError(verdict.prints or unknown)
    if statement.effect == "aborts":
        return ProcessAbortedError(verdict.prints or verdict.because)
    if statement.error is None or not verdict.prints:
        return RuntimeError(
            f"{verdict.because} [the Mac's own text is not known; opcheck: {statement.id}]"
        )
    return EXCEPTIONS.get(statement.error.type, RuntimeError)(verdict.prints)


def warning_of(verdict: Verdict, op: str, lists: OpLists) -> str:
    """Return the text of the UserWarning that the target gives where the call runs, or empty."""
    if verdict.status == "fallback" and verdict.kind in {"always", "env"}:
        return messages.fallback_warning(verdict.named or op)
    if verdict.status == "unsupported" or not verdict.prints:
        return ""
    by_id = lists.statements.by_id
    errors = [by_id[entry.detail].error for entry in verdict.evidence if entry.detail in by_id]
    warns = any(
        error is not None
        and error.type == "UserWarning"
        and verdict.prints.startswith(FIELD.split(error.text)[0])
        for error in errors
    )
    return verdict.prints if warns else ""


def _deciding_statement(verdict: Verdict, lists: OpLists) -> Statement | None:
    by_id = lists.statements.by_id
    ends = [
        by_id[entry.detail]
        for entry in verdict.evidence
        if entry.detail in by_id and by_id[entry.detail].effect in {"aborts", "raises"}
    ]
    return min(ends, key=lambda statement: statement.rank, default=None)


# -- errors of the CPU's kernels -------------------------------------------------------------------

#: On a Mac, too, the CPU runs these: its texts are the Mac's.
_RUN_BY_THE_CPU = frozenset({None, "cpu_fallback", "cpu_only"})

#: ATen/Dispatch.h, AT_DISPATCH_SWITCH.
_NOT_IMPLEMENTED = re.compile(r"\"(?P<kernel>\w+)\" not implemented for '(?P<dtype>\w+)'")

#: Other texts of the CPU's kernels (Sorting.cpp), or that name such a kernel (OperatorEntry.cpp).
_OF_THE_CPU = re.compile(
    r"not supported on CPU|does not support .* on CPU|\bon CPU (?:does|is) not"
    r"|'CPU' backend|\w_cpu(?:_\w*)?\b"
)

#: How shared code names a tensor's type: ATen/core/TensorBase.h, toString.
_TYPE_NAME = re.compile(r"\btorch\.(?P<plain>[A-Z]\w*)Tensor\b|\bCPU(?P<full>[A-Z]\w*)Type\b")

_INTEGERS = frozenset({"Byte", "Char", "Short", "Int", "Long"})


class CpuRefusesError(NotSimulatedError, NotImplementedError):
    """The CPU's kernel refuses a call, and it is not known what a Mac's kernel does.

    A program that catches PyTorch's NotImplementedError or RuntimeError catches this, too.
    """


#: HistogramKernel.mm, histogramdd_linear_kernel, checks this before it dispatches; histc takes
#: another way.
_FLOAT32_ALONE = re.compile(r"aten::(?:histogram\.bin_ct|_histogramdd_from_bin_cts)")
_FLOAT32_ALONE_SINCE = Version.parse("2.12")


def is_run_by_the_cpu(operator: str, registrations: Mapping[str, str]) -> bool:
    """Return whether a Mac computes an overload on the CPU, or by what all devices share."""
    return end_of(registrations.get(operator), registrations) in _RUN_BY_THE_CPU


def mac_error(
    error: Exception,
    operator: str,
    arguments: tuple[Any, ...],
    registrations: Mapping[str, str],
    release: Version,
) -> Exception:
    """Return the error that a Mac raises where the CPU's kernel raised ``error``; often the same.

    Args:
        error: raised by the CPU's kernel.
        operator: the overload.
        arguments: of the call.
        registrations: of the target.
        release: the target's torch.
    """
    text = str(error)
    if is_run_by_the_cpu(operator, registrations) or not isinstance(error, RuntimeError):
        return error
    refused = _NOT_IMPLEMENTED.match(text)
    if refused is None and not _OF_THE_CPU.search(text):
        shown = _TYPE_NAME.sub(lambda name: f"MPS{name['plain'] or name['full']}Type", text)
        return error if shown == text else type(error)(shown)
    dtypes = refused["dtype"] if refused else ", ".join(sorted({*_dtypes(arguments)}))
    if refused:
        if (
            release >= _FLOAT32_ALONE_SINCE
            and _FLOAT32_ALONE.match(operator)
            and dtypes in _INTEGERS | {"Half", "BFloat16"}
        ):
            return RuntimeError("histogram is only supported for float32")
        for row in CHECKS["dtypes"]:
            if dtypes in row.dtypes and row.fits(operator, release):
                return type(error)(f"\"{row.text}\" not implemented for '{dtypes}'")
    for dtype in {*_dtypes(arguments)}:
        if refused_by(operator, dtype):
            return NotImplementedError(
                f"{operator}: {nowhere(dtype)} [the Mac's own text is not known]"
            )
    return CpuRefusesError(
        f"{operator}: this machine's CPU computes in place of the MPS kernel, and refuses "
        f"{dtypes}; whether a Mac refuses it, and its message, are unknown"
    )


def _dtypes(value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        yield str(value.dtype).removeprefix("torch.")
    elif isinstance(value, torch.dtype):
        yield str(value).removeprefix("torch.")
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _dtypes(item)
