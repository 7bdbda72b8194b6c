"""What a line was answered in place of values that nobody knows, and whether it only checks them."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from opcheck.model.records import Problem, SourceLocation

if TYPE_CHECKING:
    from types import FrameType

#: different answers of one line that its problem names.
_ANSWERS_TOLD = 3

_TORCH = Path(torch.__file__).parent
_OURS = str(Path(__file__).parents[1]) + os.sep
#: between the line that asks and the operator: they ask for their callers.
_PASSED_ON = frozenset(
    str(_TORCH / name)
    for name in ("_tensor.py", "_ops.py", "overrides.py", "utils/_python_dispatch.py")
)

#: the same, function by function: torch/distributions/distribution.py, from 2.15 on.
_PASSED_ON_BY_NAME = frozenset({"_all_true_or_runtime_assert"})

#: operators by which C++ asks only whether its arguments are valid, and the function that does:
#: native/SpectralOps.cpp, istft, is_scalar_tensor_true of the window's lowest value.
_CHECKS_IN_CPP = {"aten::equal": "istft("}

#: what a line may end in instead of ``raise``.
_RAISING = frozenset({"_assert", "_check", "_check_value", "_check_index", "fail"})

#: a file and a line of it
Asker = tuple[str, int]


class Guessed:
    """The answers that one line was given in place of values that nobody knows."""

    def __init__(
        self,
        operator: str,
        location: SourceLocation | None,
        module: str,
        *,
        checks: bool = False,
    ) -> None:
        self.operator = operator
        self.location = location
        self.module = module
        #: the program goes no other way by them: it would raise.
        self.checks = checks
        self.count = 0
        #: in the order of their first use
        self.answers: dict[str, None] = {}

    @property
    def said(self) -> str:
        """The answers in words."""
        first = list(self.answers)[:_ANSWERS_TOLD]
        return ", then ".join(first) + (", ..." if len(self.answers) > _ANSWERS_TOLD else "")

    def problem(self) -> Problem:
        """What the report says of it."""
        return Problem(
            kind="value_check" if self.checks else "guess",
            message=f"{self.operator} asked for values that a run on shapes does not have: "
            f"answered {self.said}"
            + (f" ({self.count:,} times)" if self.count > 1 else "")
            + ("" if self.checks else "; the way and the shapes from here rest on that guess"),
            location=self.location,
            module=self.module,
            op=self.operator,
            answered=self.said,
            count=self.count,
        )


def asker() -> Asker:
    """Who asks for a value now: the innermost line that is not passed through on the way."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        passed_on = code.co_filename in _PASSED_ON or code.co_name in _PASSED_ON_BY_NAME
        if not passed_on and not code.co_filename.startswith(_OURS):
            return code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def only_checks(asked: Asker, operator: str) -> bool:
    """Whether a line asks for values only to raise if they are bad: an assertion, or an if that raises."""
    file, line = asked
    in_cpp = _CHECKS_IN_CPP.get(operator)
    if in_cpp is not None and in_cpp in linecache.getline(file, line):
        return True
    return line in _checking_lines(file)


@functools.cache
def _checking_lines(file: str) -> frozenset[int]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset()
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Expr) and _raises(node)):
            numbers.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.If) and _raises(node.body[-1]) and not node.orelse:
            numbers.update(range(node.lineno, (node.test.end_lineno or node.lineno) + 1))
    return frozenset(numbers)


def _raises(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = node.value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _RAISING
