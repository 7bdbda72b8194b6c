"""What a program on a Mac sees of a verdict: the exception with its text, or the warning."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from opcheck.data import messages

if TYPE_CHECKING:
    from opcheck.common.versions import Target
    from opcheck.data.registrations import OpLists
    from opcheck.data.statement_model import Statement
    from opcheck.model.records import OpCall, Verdict

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

#: c10/core/ScalarType.h: how C++ writes a dtype.
_SCALAR_TYPES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "bfloat16": "BFloat16",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
}

#: by the type that a statement names.  An IndexError or a ValueError is one in Python too.
_TYPES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError)
}

#: the refusals that the simulation sees itself: torch/csrc/utils/tensor_numpy.cpp throws a TypeError.
_REFUSALS: dict[str, type[Exception]] = {"numpy": TypeError}


class ProcessAbortedError(BaseException):
    """A Mac ends the process here, by a failed assertion of Metal's; no program catches that."""


def error_of(
    verdict: Verdict, call: OpCall, target: Target, lists: OpLists
) -> BaseException | None:
    """What the target raises; None where the call runs, or where nothing is known."""
    if verdict.status == "fallback" and verdict.kind == "env" and not target.cpu_fallback:
        return NotImplementedError(verdict.prints)
    if verdict.status != "unsupported":
        return None
    if call.refusal is not None:
        return _REFUSALS.get(call.refusal[0], RuntimeError)(verdict.prints)
    statement = _decided(verdict, lists)
    if statement is None:
        # No kernel; with the variable, no CPU kernel either.
        return NotImplementedError(verdict.prints or verdict.because)
    if statement.effect == "aborts":
        return ProcessAbortedError(verdict.prints or verdict.because)
    if statement.error is None or not verdict.prints:
        return RuntimeError(
            f"{verdict.because} [the Mac's own text is not known; opcheck: {statement.id}]"
        )
    text = _PLACEHOLDER.sub(lambda found: _value(found, call, statement), verdict.prints)
    return _TYPES.get(statement.error.type, RuntimeError)(text)


def warning_of(verdict: Verdict, op: str, lists: OpLists) -> str:
    """The UserWarning that the target gives where the call runs; empty: none."""
    if verdict.status == "fallback" and verdict.kind in {"always", "env"}:
        return messages.fallback_warning(verdict.named or op)
    if verdict.status == "unsupported" or not verdict.prints:
        return ""
    by_id = lists.statements.by_id
    met = [by_id[entry.detail] for entry in verdict.evidence if entry.detail in by_id]
    given = any(
        one.error is not None
        and one.error.type == "UserWarning"
        and one.error.text == verdict.prints
        for one in met
    )
    return verdict.prints.replace("{op}", op.partition("::")[2].partition(".")[0]) if given else ""


def _decided(verdict: Verdict, lists: OpLists) -> Statement | None:
    by_id = lists.statements.by_id
    ends = [
        by_id[entry.detail]
        for entry in verdict.evidence
        if entry.detail in by_id and by_id[entry.detail].effect in {"aborts", "raises"}
    ]
    return min(ends, key=lambda statement: statement.rank, default=None)


def _value(found: re.Match[str], call: OpCall, statement: Statement) -> str:
    """What PyTorch inserts; what only the kernel knows stays as the statement writes it."""
    specs = [spec for spec in (*call.inputs, *call.outputs) if spec.device == "mps"]
    refused = [spec for spec in specs if spec.dtype in statement.dtypes] or specs
    if not refused:
        return found[0]
    first = refused[0]
    known = {
        "op": call.op.partition("::")[2].partition(".")[0],
        "dtype": _SCALAR_TYPES.get(first.dtype, first.dtype),
        "rank": str(max(len(spec.shape) for spec in specs)),
        "count": str(max(math.prod(spec.shape) for spec in specs)),
        "numel": str(max(math.prod(spec.shape) for spec in specs)),
    }
    return known.get(found[1], found[0])
