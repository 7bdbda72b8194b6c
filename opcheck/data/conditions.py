"""The conditions of curated statements: expressions over the arguments of an operator's schema.

A condition is a Python expression that may use only comparison, boolean logic, arithmetic, indexing
and comprehensions over the arguments, a handful of functions, and a handful of attributes of
tensors.  Evaluation always terminates, never raises, and returns True or False, or None where the
call does not decide it: an argument is missing, or the expression does not fit its value.
"""

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from opcheck.common.names import DTYPES
from opcheck.common.python_source import COMPARE, parse_expression
from opcheck.common.yaml_text import load_shipped
from opcheck.model.records import TensorSpec, contiguous_stride

#: The first output tensor of the call.
RESULT = "result"
#: Whether the call draws again in the recomputation of torch.utils.checkpoint.
RECOMPUTED = "recomputed"
#: A key of the values, no name: the device of all tensors whose names have no value.
EVERY_DEVICE = "*.device"

_LIMIT = 1024  # elements that one function or comprehension may visit
_LOOPS = 2  # depth of nested comprehensions
_BITS = 4096  # size of a number


class ConditionError(ValueError):
    """The text is not a condition; the message names the part that is not allowed."""


class _CannotTellError(Exception):
    """The call lacks a value that the condition needs."""


def _contiguous(spec: TensorSpec) -> bool:
    pairs = zip(spec.shape, _stride(spec), contiguous_stride(spec.shape), strict=True)
    return 0 in spec.shape or all(size == 1 or step == usual for size, step, usual in pairs)


def _stride(spec: TensorSpec) -> tuple[int, ...]:
    if len(spec.stride) != len(spec.shape):
        raise _CannotTellError
    return spec.stride


#: The attributes of a tensor that a condition may use.
ATTRIBUTES: Mapping[str, Callable[[TensorSpec], Any]] = {
    "shape": lambda spec: spec.shape,
    "dim": lambda spec: len(spec.shape),
    "numel": lambda spec: math.prod(spec.shape),
    "dtype": lambda spec: spec.dtype,
    "contiguous": _contiguous,
    "is_complex": lambda spec: DTYPES[spec.dtype].kind == "complex",
    "is_floating": lambda spec: DTYPES[spec.dtype].kind in {"float", "float8"},
    "nbytes": lambda spec: spec.nbytes,
    "stride": _stride,
    "offset": lambda spec: spec.offset,
    "device": lambda spec: spec.device,
}


#: A number in place of a tensor: PyTorch makes a tensor of its own of it, on the CPU (ScalarOps.h, scalar_to_tensor).
_OF_NUMBERS: Mapping[str, Callable[[complex], Any]] = {
    "shape": lambda _: (),
    "dim": lambda _: 0,
    "numel": lambda _: 1,
    "contiguous": lambda _: True,
    "is_complex": lambda number: isinstance(number, complex),
    "is_floating": lambda number: isinstance(number, float),
    "offset": lambda _: 0,
    "device": lambda _: "cpu",
}


def _list_bounded(values: Any) -> list[Any]:
    """Return the elements of an iterable; more than _LIMIT elements leave the condition undecided."""
    taken = list(islice(_iterable(values), _LIMIT + 1))
    if len(taken) > _LIMIT:
        raise _CannotTellError
    return taken


def _iterable(value: Any) -> Any:
    if not isinstance(value, (tuple, list, range)):
        raise _CannotTellError
    return value


def _number(value: Any) -> Any:
    is_large = isinstance(value, int) and value.bit_length() > _BITS
    if is_large or not isinstance(value, (int, float)):
        raise _CannotTellError
    return value


def _spread(values: tuple[Any, ...]) -> list[Any]:
    """Return the arguments of max and min: one iterable, or several values."""
    return _list_bounded(values[0]) if len(values) == 1 else list(values)


def _product(values: Any) -> Any:
    product = 1
    for value in _list_bounded(values):
        product = _number(product * _number(value))
    return product


#: The functions that a condition may call; ``prod`` is math.prod.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "any": lambda values: any(_list_bounded(values)),
    "all": lambda values: all(_list_bounded(values)),
    "len": lambda values: len(_iterable(values)),
    "max": lambda *values: max(_spread(values)),
    "min": lambda *values: min(_spread(values)),
    "sum": lambda values: sum(map(_number, _list_bounded(values))),
    "abs": lambda value: abs(_number(value)),
    "prod": _product,
    "range": lambda *bounds: _list_bounded(range(*bounds)),
    "zip": lambda *values: [tuple(row) for row in zip(*map(_list_bounded, values), strict=False)],
}


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > _BITS or (isinstance(base, int) and base.bit_length() * abs(exponent) > _BITS):
        raise _CannotTellError
    value = base**exponent
    if isinstance(value, complex):
        raise _CannotTellError
    return value


_OPERATIONS: Mapping[type[ast.operator | ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.Not: operator.not_,
    ast.USub: lambda value: -_number(value),
    ast.UAdd: lambda value: +_number(value),
}
_SCALARS = (bool, int, float, str, type(None))


#: The exceptions of an expression that does not fit the call.
_FAILURES = (_CannotTellError, ArithmeticError, LookupError, TypeError, ValueError)


class Condition:
    """A parsed condition."""

    def __init__(self, text: str, body: ast.expr, names: frozenset[str]) -> None:
        self.text = text
        #: the arguments that the expression uses, ``result`` included.
        self.names = names
        self._body = body

    def evaluate(self, values: Mapping[str, Any]) -> bool | None:
        """Return whether the condition applies to these arguments; None where they do not decide it.

        Args:
            values: the arguments by their names: tensors as TensorSpec, lists of tensors as tuples
                of these, other arguments as they are.  The value of a missing name is unknown.
        """
        try:
            return bool(_evaluate(self._body, dict(values)))
        except (*_FAILURES, RecursionError):
            return None


@functools.cache
def parse(text: str) -> Condition:
    """Parse the text of a condition.

    Raises:
        ConditionError: the text is no expression, or uses something that a condition may not use.
    """
    try:
        body = parse_expression(text)
    except SyntaxError as error:
        raise ConditionError(f"not an expression: {error}") from error
    names: set[str] = set()
    try:
        _check(body, frozenset(), names)
    except RecursionError as error:
        raise ConditionError("nested too deeply") from error
    return Condition(text, body, frozenset(names))


def _check(node: ast.AST, bound: frozenset[str], names: set[str]) -> None:
    """Refuse syntax that a condition may not use, and collect the free names."""
    if isinstance(node, ast.Name):
        # clamp's arguments are called min and max: a name that is not called is an argument, and the lint checks it.
        if node.id not in bound:
            names.add(node.id)
    elif isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            raise ConditionError(f"not a function of conditions: {ast.unparse(node.func)}")
        if not node.args or node.keywords:
            raise ConditionError(f"positional arguments only: {ast.unparse(node)}")
        for value in node.args:
            _check(value, bound, names)
    elif isinstance(node, (ast.GeneratorExp, ast.ListComp)):
        _check_loops(node, bound, names)
    else:
        _check_leaf(node)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, _OPERATORS):
                _check(child, bound, names)


def _check_leaf(node: ast.AST) -> None:
    if isinstance(node, ast.Attribute) and node.attr not in ATTRIBUTES:
        raise ConditionError(f"not an attribute of conditions: .{node.attr}")
    allowed = isinstance(node, _PLAIN) or (isinstance(node, ast.Constant) and isinstance(node.value, _SCALARS))
    if not allowed and not (isinstance(node, (ast.BinOp, ast.UnaryOp)) and type(node.op) in _OPERATIONS):
        raise ConditionError(f"not allowed in a condition: {_describe(node)}")


def _describe(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__


def _check_loops(node: ast.GeneratorExp | ast.ListComp, bound: frozenset[str], names: set[str]) -> None:
    if sum(isinstance(part, ast.comprehension) for part in ast.walk(node)) > _LOOPS:
        raise ConditionError(f"more than {_LOOPS} loops inside each other")
    for part in node.generators:
        if part.is_async:
            raise ConditionError("async is not allowed in a condition")
        _check(part.iter, bound, names)
        bound |= _targets(part.target)
        for test in part.ifs:
            _check(test, bound, names)
    _check(node.elt, bound, names)


_OPERATORS = (ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context)
_PLAIN = (ast.Attribute, ast.BoolOp, ast.Compare, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.IfExp)


def _targets(node: ast.expr) -> frozenset[str]:
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    names = [item.id for item in items if isinstance(item, ast.Name)]
    if len(names) < len(items):
        raise ConditionError(f"not allowed as a loop variable: {ast.unparse(node)}")
    return frozenset(names)


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    return _EVALUATE[type(node)](node, values)


def _attribute(node: ast.Attribute, values: Mapping[str, Any]) -> Any:
    if node.attr == "device" and EVERY_DEVICE in values:
        return values[EVERY_DEVICE]
    owner = _evaluate(node.value, values)
    if isinstance(owner, (int, float, complex)) and node.attr in _OF_NUMBERS:
        return _OF_NUMBERS[node.attr](owner)
    if not isinstance(owner, TensorSpec):
        raise _CannotTellError
    return ATTRIBUTES[node.attr](owner)


def _bool_op(node: ast.BoolOp, values: Mapping[str, Any]) -> Any:
    """Evaluate in three-valued logic: a decisive operand decides although another is unknown."""
    decisive = isinstance(node.op, ast.Or)
    all_known = True
    for operand in node.values:
        try:
            if bool(_evaluate(operand, values)) is decisive:
                return decisive
        except _FAILURES:
            all_known = False
    if not all_known:
        raise _CannotTellError
    return not decisive


def _compare(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _evaluate(node.left, values)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(right_node, values)
        if not COMPARE[type(op)](_plain(left), _plain(right)):
            return False
        left = right
    return True


def _plain(value: Any) -> Any:
    """Turn lists into tuples, so that a condition treats both alike."""
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple, range)) else value


def _subscript(node: ast.Subscript, values: Mapping[str, Any]) -> Any:
    owner = _iterable(_evaluate(node.value, values))
    if isinstance(node.slice, ast.Slice):
        parts = (node.slice.lower, node.slice.upper, node.slice.step)
        return owner[slice(*(part and _evaluate(part, values) for part in parts))]
    return owner[_evaluate(node.slice, values)]


def _comprehension(node: ast.GeneratorExp | ast.ListComp, values: Mapping[str, Any]) -> list[Any]:
    scopes: list[Mapping[str, Any]] = [values]
    for part in node.generators:
        inner: list[Mapping[str, Any]] = []
        for scope in scopes:
            for item in _list_bounded(_evaluate(part.iter, scope)):
                bound = {**scope, **_bind(part.target, item)}
                if all(_evaluate(test, bound) for test in part.ifs):
                    inner.append(bound)
                if len(inner) > _LIMIT:
                    raise _CannotTellError
        scopes = inner
    return [_evaluate(node.elt, scope) for scope in scopes]


def _bind(target: ast.expr, item: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: item}
    assert isinstance(target, ast.Tuple)
    names = [name.id for name in target.elts if isinstance(name, ast.Name)]
    return dict(zip(names, _list_bounded(item), strict=True))


def _arithmetic(node: ast.BinOp, values: Mapping[str, Any]) -> Any:
    left, right = _number(_evaluate(node.left, values)), _number(_evaluate(node.right, values))
    return _number(_OPERATIONS[type(node.op)](left, right))


_EVALUATE: Mapping[type[ast.AST], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Constant: lambda node, _: node.value,
    # A name without a value raises a LookupError: the expression has no answer.
    ast.Name: lambda node, values: values[node.id],
    ast.Attribute: _attribute,
    ast.BoolOp: _bool_op,
    ast.BinOp: _arithmetic,
    ast.UnaryOp: lambda node, values: _OPERATIONS[type(node.op)](_evaluate(node.operand, values)),
    ast.Compare: _compare,
    ast.Call: lambda node, values: FUNCTIONS[node.func.id](*(_evaluate(value, values) for value in node.args)),
    ast.Subscript: _subscript,
    ast.Tuple: lambda node, values: tuple(_evaluate(item, values) for item in node.elts),
    ast.List: lambda node, values: [_evaluate(item, values) for item in node.elts],
    ast.IfExp: lambda node, values: _evaluate(node.body if _evaluate(node.test, values) else node.orelse, values),
    ast.GeneratorExp: _comprehension,
    ast.ListComp: _comprehension,
}


# -- conditions on values ------------------------------------------------------------------------------------

#: The functions of ``values``; opcheck/device/emulator/child/verdicts.py has them.
VALUE_FUNCTIONS = frozenset(load_shipped(__file__, "value_functions.yaml"))
_OF_VALUES: tuple[type[ast.AST], ...] = (
    *(ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Constant, ast.Subscript),
    *_OPERATORS,
)


def check_values(text: str) -> None:
    """Check an expression over the values of a call's arguments.

    Raises:
        ConditionError: the text is no expression, or uses something that such an expression may not use.
    """
    try:
        nodes = list(ast.walk(parse_expression(text)))
    except SyntaxError as error:
        raise ConditionError(f"not an expression: {error}") from error
    for node in nodes:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in VALUE_FUNCTIONS and not node.keywords:
                continue
            raise ConditionError(f"not a function of values: {ast.unparse(node)}")
        if not isinstance(node, _OF_VALUES):
            raise ConditionError(f"not allowed in values: {_describe(node)}")
