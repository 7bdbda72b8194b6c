"""Finds out whether an exception comes from code that a program reaches on MPS alone.

A library that treats ``mps`` apart can be wrong there and nowhere else: its own Python raises on a Mac, and no operator
has a part in it.  Only conditions that name the device count: ``device.type == "mps"``, ``x.is_mps``,
``torch.backends.mps.is_available()``, and a ``return`` before the line for all other devices.
"""

from __future__ import annotations

import ast
import functools
import traceback

from opcheck.common.python_source import source_lines
from opcheck.common.text import shorten
from opcheck.tracing.source_locations import is_user_code

_MPS = "mps"
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def condition_before(error: BaseException) -> str:
    """Return the condition, as its source has it, under which MPS alone comes to the line that raised.

    Empty: there is none, or the exception does not come from the program's or a library's own Python.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not is_user_code(frames[-1].filename):
        return ""
    for frame in reversed(frames):
        if frame.lineno is not None and is_user_code(frame.filename):
            condition = _condition(frame.filename, frame.lineno)
            if condition is not None:
                return shorten(ast.unparse(condition), 100)
    return ""


def _condition(filename: str, line: int) -> ast.expr | None:
    tree = _parse(filename)
    return None if tree is None else _in_block(tree.body, line)


@functools.cache
def _parse(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(source_lines(filename)))
    except (
        SyntaxError,
        ValueError,
        RecursionError,
    ):  # a cell of a notebook, a file that has changed
        return None


def _in_block(block: list[ast.stmt], line: int) -> ast.expr | None:
    """Return the innermost condition around or before a line of these statements that only MPS passes."""
    passed: ast.expr | None = None
    for statement in block:
        if statement.lineno > line:
            break
        if line <= (statement.end_lineno or statement.lineno):
            return _in_statement(statement, line) or passed
        if (
            isinstance(statement, ast.If)
            and not statement.orelse
            and isinstance(statement.body[-1], _LEAVES)
            and _is_false_on_mps_alone(statement.test)
        ):
            passed = statement.test
    return None


def _in_statement(statement: ast.stmt, line: int) -> ast.expr | None:
    for field in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(statement, field, None) or []
        if not block or not block[0].lineno <= line <= block[-1].end_lineno:
            continue
        if field == "handlers":
            handlers = (each.body for each in block)
            return next((found for body in handlers if (found := _in_block(body, line))), None)
        inner = _in_block(block, line)
        if inner is not None or not isinstance(statement, ast.If):
            return inner
        decides = _is_true_on_mps_alone if field == "body" else _is_false_on_mps_alone
        return statement.test if decides(statement.test) else None
    return None


def _is_true_on_mps_alone(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(_is_true_on_mps_alone, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_false_on_mps_alone(operand)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return _names_mps(left) or _names_mps(right)
        case ast.Attribute(attr="is_mps"):
            return True
        case ast.Call(func=ast.Attribute(attr="startswith"), args=[prefix]):
            return _names_mps(prefix)
        case ast.Call(func=function):
            return ast.unparse(function).endswith("backends.mps.is_available")
    return False


def _is_false_on_mps_alone(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(map(_is_false_on_mps_alone, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_true_on_mps_alone(operand)
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return _names_mps(left) or _names_mps(right)
    return False


def _names_mps(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=text):
            return text == _MPS
        case ast.Call(args=[ast.Constant(value=text)]):  # torch.device("mps")
            return text == _MPS
    return False
