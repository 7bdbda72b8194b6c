"""The forms of a choice between CUDA and the CPU."""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from opcheck.common.versions import Version
from opcheck.source import call_tables
from opcheck.source.edits import Edit, Fix, is_too_long, merge_edits, replace
from opcheck.source.program import Binding, Program, walk
from opcheck.source.rule import Scanned
from opcheck.source.words import begins, is_cuda, last

#: The longest chain of names that is followed from a condition.
_DEEPEST = 4
#: Expressions that compose a text, such as ``"cuda:{}".format(index)``.
_COMPOSED = (ast.JoinedStr, ast.BinOp, ast.Call)
#: The names of a device that a fix uses where it is in scope.
NAMES = ("device", "DEVICE", "dev")
#: A flag with more values has another meaning, too.
_MOST_BINDINGS = 3
#: The functions of a generator's state, by the number of their arguments without a device.
_STATES = {"get_rng_state": 0, "set_rng_state": 1}
#: A fix uses no device with more values.
_MOST_DEVICES = 8


class Device(NamedTuple):
    """A device that is written as a constant."""

    text: str
    #: whether it is a torch.device and not a text
    is_object: bool


def read_device(node: ast.AST | None, scanned: Scanned) -> Device | None:
    """Return the device in ``"cuda:0"`` or ``torch.device("cpu")``; None for other expressions."""
    if isinstance(node, ast.Call) and scanned.dotted_name(node.func) == "torch.device":
        inner = read_device(node.args[0], scanned) if len(node.args) >= 1 else None
        return inner and (None if node.keywords else inner._replace(is_object=True))
    if isinstance(node, ast.Constant):
        is_device = is_cuda(node.value) or node.value in {"cpu", "cpu:0"}
        return Device(str(node.value), is_object=False) if is_device else None
    is_index = isinstance(node, _COMPOSED) and begins(node).startswith("cuda:")
    return Device("cuda:?", is_object=False) if is_index else None


def find_offer(node: ast.AST | None, scanned: Scanned) -> Device | None:
    """Return the device that an expression may come to, also in ``x or "cuda:0"`` and ``[torch.device("cpu")]``."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        node = node.values[-1]
    elif isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1:
        node = node.elts[0]
    elif isinstance(node, ast.ListComp):  # [torch.device(i) for i in range(torch.cuda.device_count())]
        is_each = any(scanned.dotted_name(part) == "torch.cuda.device_count" for part in walk(node.generators[0].iter))
        return Device("cuda:?", is_object=True) if is_each else None
    return read_device(node, scanned)


def read_choice(first: ast.AST | None, second: ast.AST | None, scanned: Scanned) -> tuple[Device, Device] | None:
    """Return both devices if the first or the second is CUDA and the other is the CPU."""
    one, other = read_device(first, scanned), read_device(second, scanned)
    if one is None or other is None or is_cuda(one.text) == is_cuda(other.text):
        return None
    return one, other


def about_cuda(test: ast.AST, scanned: Scanned) -> bool:
    """Return whether a condition depends on CUDA, also through names that the file binds once."""
    return _is_about_cuda(test, scanned, _DEEPEST)


def _is_about_cuda(test: ast.AST, scanned: Scanned, depth: int) -> bool:
    return scanned.once(("about cuda", test, depth), _find_cuda, test, scanned, depth)


def _find_cuda(test: ast.AST, scanned: Scanned, depth: int) -> bool:
    for part in walk(test):
        if isinstance(part, ast.Constant) and is_cuda(part.value):
            return True
        if not isinstance(part, (ast.Name, ast.Attribute)):
            continue
        if "cuda" in last(part).lower() or "cuda" in scanned.dotted_name(part):
            return True
        bindings = scanned.program.bindings(part) if depth else []
        value = scanned.program.only_value(part) if depth else None
        if value is not None and _is_about_cuda(value, scanned, depth - 1):
            return True
        # ``self.use_gpu = False``, and True below ``if torch.cuda.is_available():``.
        if 1 < len(bindings) <= _MOST_BINDINGS and any(
            isinstance(parent := scanned.program.parent(binding.node), ast.If)
            and _is_about_cuda(parent.test, scanned, depth - 1)
            for binding in bindings
        ):
            return True
    return False


def holds_on_cuda(test: ast.expr, scanned: Scanned) -> bool | None:
    """Return True if a condition is true with CUDA and false on a Mac, False for the reverse, None if it is unclear."""
    truth = scanned.mac.truth(test)
    if truth is None or not about_cuda(test, scanned):
        return None
    return not truth


def torch_name(scanned: Scanned) -> str:
    """Return the file's name for torch; empty where it does not import torch as a whole."""
    names = [name for name, full in scanned.program.imports.items() if full == "torch"]
    return min(names, key=len) if names else ""


def write_choice(cuda: str, scanned: Scanned) -> str:
    """Write the choice of CUDA, then MPS, then the CPU; ``cuda`` is the text in its quotes."""
    torch = torch_name(scanned)
    quote = cuda[0]
    mps = f"{quote}mps{quote} if {torch}.backends.mps.is_available() else {quote}cpu{quote}"
    return f"{cuda} if {torch}.cuda.is_available() else {mps}" if torch else ""


def write_mps_or(text: str, scanned: Scanned) -> str:
    """Write the choice of MPS where there is MPS, and of a text elsewhere; empty without a name for torch."""
    torch = torch_name(scanned)
    return f'"mps" if {torch}.backends.mps.is_available() else {text}' if torch else ""


def choose_device(cuda: str, scanned: Scanned, write: Callable[[str], Edit]) -> Fix | None:
    """Return the fix that writes the choice of a device, or the call of a helper, by the same edit."""
    choice = write_choice(cuda, scanned)
    return Fix((write(choice),), "unsafe", (write("{helper}"),)) if choice else None


def wrap_arguments(fix: Fix, node: ast.AST | None, scanned: Scanned) -> Fix:
    """Write the arguments of a call on a line of their own, where a fix in the call would make its line too long."""
    if not isinstance(node, ast.Call) or node.end_lineno != node.lineno or not is_too_long(fix.edits, scanned.lines):
        return fix
    # Before Python 3.12 an expression of an f-string has one line.
    if any(isinstance(place.parent, ast.FormattedValue) for _, place in scanned.program.ancestors(node)):
        return fix
    line, column, end = node.lineno, (node.func.end_col_offset or 0) + 1, (node.end_col_offset or 0) - 1
    text = scanned.lines[line - 1]
    indent = text[: len(text) - len(text.lstrip())]
    first = Edit(line, column, line, column, f"\n{indent}    ")
    edits = [edit._replace(text=first.text + edit.text) if edit[:2] == first[:2] else edit for edit in fix.edits]
    if edits == [*fix.edits]:
        edits.append(first)
    return fix._replace(edits=tuple(merge_edits([*edits, Edit(line, end, line, end, f"\n{indent}")])))


def asks_cuda(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether an expression is a call of ``torch.cuda.is_available``."""
    return isinstance(node, ast.Call) and scanned.dotted_name(node.func) == "torch.cuda.is_available"


def cuda_name(node: ast.AST, scanned: Scanned, test: ast.expr | None = None) -> str:
    """Return the name of a device that is CUDA on every machine that has it; empty where no name is bound so.

    It is bound once in the function, or at the top of the file, above the node: to CUDA or to its choice; with a
    condition, to the choice that this condition makes.
    """
    for name, bindings in _bound_above(node, scanned):
        if len(bindings) > 1 or bindings[0].value is None:
            continue
        value = scanned.unwrap_device(bindings[0].value)
        is_same, first = test is None, value
        if isinstance(value, ast.IfExp):
            first, asked = value.body, scanned.text(value.test)
            is_same = asked == scanned.text(test) if test else asks_cuda(value.test, scanned)
        device = read_device(first, scanned)
        if is_same and device is not None and device.text == "cuda":
            return name
    return ""


def called_on_mps(call: ast.AST, name: str, scanned: Scanned) -> Fix | None:
    """``torch.cuda.empty_cache()`` as the function of torch.mps where there is MPS, on the same line."""
    torch = torch_name(scanned)
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and torch) or call.keywords:
        return None
    chosen_module = f"({torch}.mps if {torch}.backends.mps.is_available() else {torch}.cuda)"
    edits = (replace(call.func, f"{chosen_module}.{name}"),)
    if len(call.args) == _STATES.get(name):
        # A checkpoint of the other device has another state.
        return wrap_arguments(Fix(edits, "unsafe", since=Version(2, 0)), call, scanned)
    is_statement = isinstance(scanned.program.parent(call), ast.Expr) and not call.args
    return Fix(edits, since=Version(2, 0)) if is_statement and name in call_tables.ON_MPS else None


def device_name(node: ast.AST, scanned: Scanned) -> str:
    """Return the name of a device that the function has above a node, as a parameter or a value; empty for none.

    It may be the CPU on a machine with CUDA: only ``cuda_name`` is certain.
    """
    for name, bindings in _bound_above(node, scanned):
        devices = [read_device(binding.value, scanned) for binding in bindings]
        if all(device is None or is_cuda(device.text) for device in devices):
            return name
    return ""


def _bound_above(node: ast.AST, scanned: Scanned) -> Iterator[tuple[str, list[Binding]]]:
    """Yield the names of a device that are bound wherever a node runs, each with its bindings, which are all above it.

    A parameter, or an assignment in a block around the node, is among them: the others may not have run.
    """
    program, line = scanned.program, getattr(node, "lineno", 0)
    for name in NAMES:
        bindings = program.bound_in(program.scope(node), name)
        if len(bindings) > _MOST_DEVICES or scanned.once(("deleted", name), _is_deleted, name, program):
            continue
        places = [_takes_effect(binding, line, program) for binding in bindings]
        blocks = {(place.parent, place.field) for _, place in program.ancestors(node)} if places else set()
        if None not in places and not blocks.isdisjoint(places):
            yield name, bindings


def _is_deleted(name: str, program: Program) -> bool:
    return any(isinstance(getattr(use, "ctx", None), ast.Del) for use in program.uses.get(name, ()))


def _takes_effect(binding: Binding, line: int, program: Program) -> tuple[ast.AST, str] | None:
    """Return the block that a parameter, or an assignment above a line, binds a name for; None for another binding."""
    node, place = binding.node, program.place(binding.node)
    if isinstance(node, ast.arg):
        return program.scope(node), "body"
    is_above = isinstance(node, (ast.Assign, ast.AnnAssign)) and (node.end_lineno or line) < line
    return (place.parent, place.field) if place and is_above else None


def asks_mps(test: ast.expr, scanned: Scanned) -> str:
    """Write the same condition for MPS that the program has for CUDA.

    ``args.gpu and torch.cuda.is_available()`` gives ``args.gpu and torch.backends.mps.is_available()``. Empty where the
    condition is of another form: a part must be a call of ``torch.cuda.is_available()``, the others may be names,
    ``not`` and ``and``.
    """
    torch = torch_name(scanned)
    if not torch:
        return ""
    text, asked = _asks(test, scanned, f"{torch}.backends.mps.is_available()", depth=_DEEPEST)
    return text if asked else ""


def _means_the_same(value: ast.expr, place: ast.expr, scanned: Scanned) -> bool:
    """Return whether the names in a value have the same bindings where the value is used."""
    program = scanned.program
    here, there = program.scope(place), program.scope(value)
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    return here is there or all(program.bound_in(here, name) is program.bound_in(there, name) for name in names)


def _asks(test: ast.expr, scanned: Scanned, mps: str, depth: int) -> tuple[str, bool]:
    """The condition, and whether it depends on CUDA; empty for another form."""
    if isinstance(test, ast.Call):
        return (mps, True) if asks_cuda(test, scanned) and not test.args else ("", False)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [_asks(part, scanned, mps, depth) for part in test.values]
        if not all(text for text, _ in parts):
            return "", False
        return " and ".join(text for text, _ in parts), any(asked for _, asked in parts)
    if isinstance(test, (ast.Name, ast.Attribute)):
        value = scanned.program.only_value(test) if depth else None
        if value is not None and isinstance(value, (ast.Call, ast.BoolOp)) and about_cuda(value, scanned):
            return _asks(value, scanned, mps, depth - 1) if _means_the_same(value, test, scanned) else ("", False)
        return scanned.text(test), False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        if about_cuda(test.operand, scanned) and isinstance(test.operand, ast.Call):
            return "", False
        is_name = isinstance(test.operand, (ast.Name, ast.Attribute))
        return (scanned.text(test), False) if is_name else ("", False)
    return "", False
