"""The values of expressions on a Mac, and which lines a Mac reaches.

Conditions have the values that they have on a Mac: ``torch.cuda.is_available()`` is false there,
``device.type == "mps"`` is true. Lines behind a condition of unknown value count as reached.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from opcheck.common.python_source import COMPARE
from opcheck.data.packages import PACKAGES
from opcheck.source import call_tables
from opcheck.source.program import Binding, NodePlace, Program
from opcheck.source.words import (
    UNKNOWN,
    begins,
    by_name,
    compare_device,
    compared_by_name,
    find_caught,
    is_cuda,
    last,
    leaves,
    tells_failure,
)

Answer = TypeVar("Answer")
Part = TypeVar("Part", bound=ast.AST)

Loop = ast.For | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
_LOOPS = (ast.For, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

#: The fields of a statement, a handler or a case that are blocks of statements.
_BLOCKS = ("body", "orelse", "handlers", "finalbody")


class Value(NamedTuple):
    """A constant that an expression may have as its value, and where it is written."""

    constant: object
    origin: ast.AST


#: An expression with more values counts as unknown.
_MOST = 8
#: A handler around more lines is there for other errors.
_SHORT_TRY = 12
#: An expression that depends on a longer chain of others is unknown: each takes about eight of
#: Python's 1000 frames.
_DEEPEST = 60


class FileQuestions:
    """Answers questions about a file; each answer is computed once.

    Where an answer depends on itself (``n = n + 1``), a provisional answer is used until the final
    answer is found. An answer that used a provisional answer is not kept, unless the cycle began with it.
    """

    def __init__(
        self, program: Program, torch: str, imported: Callable[[str], Sequence[object]] = lambda _name: ()
    ) -> None:
        """Read a program for a release of torch; ``imported`` gives the values of names of other files."""
        self.program = program
        self._imported = imported
        self._constants: dict[str, object] = {"torch.__version__": f"{torch}.0", **call_tables.ON_A_MAC}
        #: the values of expressions, and whether a node is reached
        self._guarded: dict[object, Any] = {}
        #: the questions whose answers are provisional, and how often such an answer was used
        self._open: set[object] = set()
        self._provisional = 0
        #: by question, the answers that used no provisional one
        self._settled: dict[tuple[object, ...], object] = {}
        #: by block or expression, how many of its first parts do not stop the program
        self._passed: dict[tuple[ast.AST, str], int] = {}

    def _once(self, question: tuple[object, ...], find: Callable[..., Answer], *arguments: object) -> Answer:
        """Return the answer; it is computed once, unless it used a provisional answer."""
        if question in self._settled:
            return self._settled[question]  # type: ignore[return-value]  # what find returned
        before = self._provisional
        answer = find(*arguments)
        if self._provisional == before:
            self._settled[question] = answer
        return answer

    # -- values ----------------------------------------------------------------------------------

    def values(self, node: ast.expr) -> tuple[Value, ...]:
        """Return the values that an expression may have on a Mac; UNKNOWN if there may be more."""
        # A value that depends on itself (``n = n + 1``) is unknown.
        unknown: tuple[Value, ...] = (Value(UNKNOWN, node),)
        values = self._guard(node, unknown, self._find, node)
        return values if len(values) <= _MOST else unknown

    def _guard(self, question: object, provisional: Answer, find: Callable[..., Answer], *arguments: object) -> Answer:
        """Return the answer to a question; the provisional one while the question is open, or too deep."""
        answers: dict[object, Answer] = self._guarded
        if question in answers:
            self._provisional += question in self._open
            return answers[question]
        if len(self._open) >= _DEEPEST:
            self._provisional += 1
            return provisional
        answers[question] = provisional
        self._open.add(question)
        answers[question] = find(*arguments)
        self._open.discard(question)
        return answers[question]

    def constant(self, node: ast.expr) -> object:
        """Return the only value of an expression, or UNKNOWN."""
        # With the type, because 1, 1.0 and True are equal; not by repr, which refuses a number of
        # 5,000 digits.
        constants = {(type(value.constant), value.constant): value.constant for value in self.values(node)}
        return next(iter(constants.values())) if len(constants) == 1 else UNKNOWN

    def cuda(self, node: ast.expr | None) -> Value | None:
        """Return the text ``cuda...`` that an expression may have as its value."""
        values = self.values(node) if node is not None else ()
        return next((value for value in values if is_cuda(value.constant)), None)

    def _find(self, node: ast.expr) -> tuple[Value, ...]:
        if isinstance(node, ast.Constant):
            return (Value(node.value, node),)
        if (constants := self._constants.get(self._name_call(node), UNKNOWN)) is not UNKNOWN:
            return (Value(constants, node),)
        if isinstance(node, ast.IfExp):
            truth = self.truth(node.test)
            sides = [node.body] * (truth is not False) + [node.orelse] * (truth is not True)
            return tuple(value for side in sides for value in self.values(side))
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._find_bound(node)
        if isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
                return self._either(node)
            truth = self.truth(node)
            number = isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not)
            return (Value(UNKNOWN if truth is None or number else truth, node),)
        if begins(node).startswith("cuda"):
            return (Value("cuda:?", node),)
        return (Value(UNKNOWN, node),)

    def _name_call(self, node: ast.expr) -> str:
        """The dotted name, followed by ``()`` in a call."""
        if isinstance(node, ast.Call):
            return f"{self.program.dotted_name(node.func)}()"
        return self.program.dotted_name(node)

    def _find_bound(self, node: ast.expr) -> tuple[Value, ...]:
        bindings = self.program.bindings(node)
        if not bindings:
            name = self.program.dotted_name(node)
            constants = self._once(("imported", name), self._imported, name) if name else ()
            values = tuple(Value(constant, node) for constant in constants)
            return values or (Value(UNKNOWN, node),)
        values = self._once(("bound", id(bindings)), self._bound_to, bindings)
        return values or (Value(UNKNOWN, node),)

    def _bound_to(self, bindings: Sequence[Binding]) -> tuple[Value, ...]:
        """Return the values of the bindings that a Mac reaches; too many values are cut off."""
        values: list[Value] = []
        for binding in bindings:
            if len(values) > _MOST:
                break
            if binding.value is None:
                values.append(Value(UNKNOWN, binding.node))
            elif self.is_reached(binding.node, tries=False):
                values.extend(self.values(binding.value))
        return tuple(values)

    def _either(self, node: ast.BoolOp) -> tuple[Value, ...]:
        values: list[Value] = []
        for part in node.values:
            truth = self.truth(part)
            if truth is not False:
                values.extend(self.values(part))
            if truth:
                break
        return tuple(values) or (Value(constant=False, origin=node),)

    # -- conditions ------------------------------------------------------------------------------

    def truth(self, node: ast.expr) -> bool | None:
        """Return whether a condition is true on a Mac; None if that is unknown."""
        return self._once(("truth", node), self._truth, node)

    def _truth(self, node: ast.expr) -> bool | None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.BoolOp):
            return self._join_truths(node)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if (begins_with := self._startswith(node)) is not None:
            return begins_with
        constants = [value.constant for value in self.values(node)]
        truths = {bool(constant) for constant in constants if constant is not UNKNOWN}
        if len(truths) == 1 and UNKNOWN not in constants:
            return truths.pop()
        return None if truths else by_name(node)

    def _join_truths(self, node: ast.BoolOp) -> bool | None:
        decides = isinstance(node.op, ast.Or)
        parts = [self.truth(part) for part in node.values]
        if decides in parts:
            return decides
        unknown = [part for part, truth in zip(node.values, parts, strict=True) if truth is None]
        # ``hasattr(device, "type") and device.type == "mps"``: what has the value has the attribute.
        if not decides:
            unknown = [part for part in unknown if not _is_read_beside(part, node.values)]
        return None if unknown else not decides

    def _compare(self, node: ast.Compare) -> bool | None:
        if len(node.ops) != 1:
            return None
        left, right = self._side(node.left), self._side(node.comparators[0])
        kind = type(node.ops[0])
        # Where the file itself sets the device to cuda, that line is a finding; a port changes it,
        # so here the device is unknown.
        if len(right) == 1 and is_cuda(right[0]) and all(map(is_cuda, left)):
            left = [UNKNOWN]
        elif len(left) == 1 and is_cuda(left[0]) and all(map(is_cuda, right)):
            right = [UNKNOWN]
        answers: set[bool | None]
        if UNKNOWN in left or UNKNOWN in right:
            # Next to an unknown value, the other values decide nothing.
            unknown: list[object] = [UNKNOWN]
            left, right = (unknown if UNKNOWN in side else side for side in (left, right))
            answers = {compare_device(kind, left, right)}
        else:
            try:
                answers = {bool(COMPARE[kind](first, second)) for first in left for second in right}
            except TypeError:
                return None
        answer = answers.pop() if len(answers) == 1 else None
        return compared_by_name(kind, node.left, node.comparators[0]) if answer is None else answer

    def _side(self, node: ast.expr) -> list[object]:
        """The values of a side of a comparison; a device counts as its text, also by a name that is bound once."""
        if (text := self._text_of_device(node)) is not None:
            return self._side(text)
        bound = self.program.only_value(node) if isinstance(node, ast.Name) else None
        if bound is not None and (text := self._text_of_device(bound)) is not None:
            return [value.constant for value in self.values(text)]
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            parts = [part.value for part in node.elts if isinstance(part, ast.Constant)]
            return [tuple(parts) if len(parts) == len(node.elts) else UNKNOWN]
        return [value.constant for value in self.values(node)]

    def _text_of_device(self, node: ast.expr) -> ast.expr | None:
        """The argument of ``torch.device(text)`` and ``str(device)``."""
        match node:
            case ast.Call(func=func, args=[text, *_]):
                return text if self.program.dotted_name(func) in {"torch.device", "str"} else None
        return None

    def _startswith(self, node: ast.expr) -> bool | None:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="startswith"), args=[beginning]):
                text, part = self.constant(value), self.constant(beginning)
                if isinstance(text, str) and isinstance(part, str):
                    return text.startswith(part)
                of_devices = {"cuda": False, "cuda:": False, "mps": True}
                return of_devices.get(part) if isinstance(part, str) else None
        return None

    # Whether a line is reached

    def is_reached(self, node: ast.AST, *, tries: bool = True) -> bool:
        """Return whether a Mac may reach a node.

        With ``tries``, what fails in a short try block counts as not reached.
        """
        return self._guard((node, tries), True, self._comes_to, node, tries)  # noqa: FBT003

    def _comes_to(self, node: ast.AST, tries: bool) -> bool:  # noqa: FBT001  (handed on by _guard)
        """The answer, and that of the nodes around it up to the deciding node."""
        before, answer = self._provisional, True
        inside: list[tuple[object, ...]] = []
        for child, place in self.program.ancestors(node):
            question = ("reached", child, tries)
            if question in self._settled:
                answer = bool(self._settled[question])
                break
            inside.append(question)
            if self._bars(place, tries=tries):
                answer = False
                break
        if self._provisional == before:
            self._settled |= dict.fromkeys(inside, answer)
        return answer

    def _bars(self, place: NodePlace, *, tries: bool) -> bool:
        """Return whether the parent of a node keeps a Mac from reaching it."""
        parent, field = place.parent, place.field
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)):
            truth = self.truth(parent.test) if field != "test" else None
            if (field == "body" and truth is False) or (field == "orelse" and truth is True):
                return True
        elif isinstance(parent, ast.BoolOp):
            stops = isinstance(parent.op, ast.Or)
            return self._stops_before(place, parent.values, lambda part: self.truth(part) is stops)
        elif isinstance(parent, _LOOPS):
            if self._goes_over_nothing(parent, field):
                return True
        elif isinstance(parent, ast.Try) and field == "body":
            return self._once(("tried", parent, tries), self._fails_in_try, parent, tries)
        elif isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if field == "decorator_list":
                return False
            if self._once(("skipped", parent), any, map(self._skips, parent.decorator_list)) or (
                not isinstance(parent, ast.ClassDef)
                and self._once(("guarded", parent.name), self._called_under_guards, parent.name)
            ):
                return True
        return self._left_before(place)

    def _left_before(self, place: NodePlace) -> bool:
        """Return whether a statement before the child, such as a guarded return, leaves the block."""
        block = getattr(place.parent, place.field)
        if place.field not in _BLOCKS or not isinstance(block, list):
            return False
        return self._stops_before(place, block, self._leaves)

    def _leaves(self, statement: ast.AST) -> bool:
        if not isinstance(statement, ast.If):
            return False
        truth = self.truth(statement.test)
        return truth is not None and leaves(statement.body if truth else statement.orelse)

    def _stops_before(self, place: NodePlace, parts: Sequence[Part], stops: Callable[[Part], bool]) -> bool:
        """Return whether an earlier part keeps the program from reaching the child."""
        block = (place.parent, place.field)
        keeps = True
        for number in range(self._passed.get(block, 0), place.position):
            before = self._provisional
            if stops(parts[number]):
                return True
            keeps = keeps and self._provisional == before
            if keeps:
                self._passed[block] = max(self._passed.get(block, 0), number + 1)
        return False

    def _goes_over_nothing(self, loop: Loop, field: str) -> bool:
        """Return whether a loop or a comprehension has no elements on a Mac."""
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            return field == "body" and self._is_empty(loop.iter)
        # What a comprehension goes over is evaluated in any case.
        return field != "generators" and self._once(("filtered", loop), self._filters_all, loop.generators)

    def _filters_all(self, generators: Sequence[ast.comprehension]) -> bool:
        return any(
            self._is_empty(part.iter) or any(self.truth(test) is False for test in part.ifs) for part in generators
        )

    def _is_empty(self, node: ast.expr) -> bool:
        """Return whether a loop goes over nothing on a Mac: ``range(torch.cuda.device_count())``."""
        match node:
            case ast.Call(func=func, args=[count]):
                return last(func) == "range" and self.constant(count) == 0
        return False

    def _fails_in_try(self, node: ast.Try, tries: bool) -> bool:  # noqa: FBT001  (handed on by _once)
        for handler in node.handlers:
            kinds = find_caught(handler)
            if any(map(tells_failure, ast.walk(handler))):
                continue
            if kinds & call_tables.IMPORT_ERRORS and any(map(self._fails_to_import, node.body)):
                return True
            lines = (node.body[-1].end_lineno or 0) - node.body[0].lineno
            if tries and lines < _SHORT_TRY and kinds & call_tables.CUDA_ERRORS:
                return True
        return False

    def _fails_to_import(self, statement: ast.stmt) -> bool:
        modules: list[str] = []
        if isinstance(statement, ast.Import):
            modules = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            modules = [statement.module or ""]
        table = PACKAGES.load()
        names = (table.by_import.get(name.partition(".")[0]) for name in modules)
        return any(name is not None and not table.by_name[name].fails for name in names)

    def _skips(self, decorator: ast.expr) -> bool:
        """Return whether a decorator skips a test where there is no CUDA."""
        call = decorator if isinstance(decorator, ast.Call) else None
        name = last(call.func if call else decorator).lower()
        if "skip" in name and call and call.args and "unless" not in name:
            return self.truth(call.args[0]) is True
        if "skipunless" in name and call and call.args:
            return self.truth(call.args[0]) is False
        wanted = any(word in name for word in ("require", "skip", "only", "need"))
        return wanted and any(word in name for word in ("cuda", "gpu", "nccl"))

    def _called_under_guards(self, name: str) -> bool:
        """Return whether the file itself calls or hands on the function, and each time behind a guard."""
        if not (name.startswith("_") or self._once(("script",), self._is_script)):
            return False
        uses = self.program.uses.get(name, []) if name[:2] != "__" else []
        return bool(uses) and not any(self.is_reached(use, tries=False) for use in uses)

    def _is_script(self) -> bool:
        return any(
            isinstance(statement, ast.If) and any(last(part) == "__name__" for part in ast.walk(statement.test))
            for statement in self.program.tree.body
        )


def _is_read_beside(part: ast.expr, conditions: Sequence[ast.expr]) -> bool:
    """Return whether a part is ``hasattr(x, "name")`` and another condition reads ``x.name``."""
    if not (isinstance(part, ast.Call) and last(part.func) == "hasattr" and len(part.args) == 2):
        return False
    owner, name = part.args
    return any(
        isinstance(inner, ast.Attribute)
        and isinstance(name, ast.Constant)
        and inner.attr == name.value
        and ast.unparse(inner.value) == ast.unparse(owner)
        for condition in conditions
        if condition is not part
        for inner in ast.walk(condition)
    )
