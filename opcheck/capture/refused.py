"""Calls that raise before any kernel, by the very text of a limitation that holds for the target.

Some checks stand in a composite's C++, in front of every kernel, and ask whether the device is CUDA: the CPU
under the simulation answers as a Mac does (promote_type_fft in aten/src/ATen/native/SpectralOps.cpp, say).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from opcheck.common.vocabulary import Phase
from opcheck.model.records import OpCall, Problem
from opcheck.simulator import device

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opcheck.common.versions import Target
    from opcheck.data.statement_model import Statement

#: a text with less of its own than this could be anybody's.
_FEWEST_LETTERS = 12
_PLACEHOLDER = re.compile(r"\\\{\w+\\\}")


def operator(error: BaseException) -> str:
    """The operator whose C++ raised, called by name; empty where Python raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename != device.__file__:
        return ""
    name = getattr(trace.tb_frame.f_locals.get("func"), "__name__", "")
    return f"aten::{name}" if hasattr(torch.ops.aten, name) else ""


def call(
    problem: Problem, phase: Phase, target: Target, statements: Iterable[Statement]
) -> OpCall | None:
    """The call that raised, if a Mac is known to raise the same; None where nothing says so."""
    if not problem.op or problem.kind not in ("model_raised", "training_raised"):
        return None
    raised = problem.message.partition(" raised ")[2]
    for statement in statements:
        if _says(statement, raised) and _holds(statement, target):
            return OpCall(
                op=problem.op,
                location=problem.location,
                module=problem.module,
                phase=phase,
                refusal=(statement.id, raised.partition(": ")[2]),
            )
    return None


def _holds(statement: Statement, target: Target) -> bool:
    return (
        statement.effect == "raises"
        and not statement.when
        and statement.spans(str(target.torch))
        and target.macos in statement.macos
    )


def _says(statement: Statement, raised: str) -> bool:
    error = statement.error
    if error is None:
        return False
    pattern = re.escape(f"{error.type}: {error.text}")
    if len(_PLACEHOLDER.sub("", re.escape(error.text))) < _FEWEST_LETTERS:
        return False
    return re.fullmatch(_PLACEHOLDER.sub(".+", pattern), raised) is not None
