"""Whether a program handles MPS at one choice or branch: judged by that value and that branch, never by the file.

A fix may write MPS on one line.  Another line of the same function that leaves MPS out is still a finding, so a choice
inside of an expression (``"mps" if ... else "cuda"``) speaks for itself alone.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcheck.common.grouping import group_values
from opcheck.source.devices import about_cuda
from opcheck.source.program import walk
from opcheck.source.rule import Scanned, method
from opcheck.source.words import begins, is_cuda, last, word

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_CONDITIONS = (ast.Call, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Attribute, ast.Name)
_CONDITIONAL = (ast.If, ast.IfExp, ast.While)
#: Statements that give a value to a name, or back.
_BINDS = (ast.Assign, ast.AnnAssign, ast.Return)
_MOVES = {"cuda", "mps", "to"}
#: A longer text is documentation.
_LONGEST = 200


class _Bound(NamedTuple):
    """Where a function binds a name for MPS, or returns."""

    line: int
    statement: ast.stmt


def handles_mps(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether the branch or the value that a node decides has a case for MPS.

    It has one where a condition around the node, or the other side of its own, names MPS; where the statement before or
    after is a condition about MPS; or where the same name is bound, or returned, for MPS elsewhere in the function.
    """
    is_named = bool(scanned.once(("names mps",), _find_mps, scanned))
    return is_named and scanned.once(("handles mps", node), _handles, node, scanned)


def _handles(node: ast.AST, scanned: Scanned) -> bool:
    decided, is_inside = node, False
    if _has_case(node, scanned):
        return True
    for _, place in scanned.program.ancestors(node):
        parent = place.parent
        if isinstance(parent, _FUNCTIONS):
            break
        if isinstance(parent, ast.BoolOp) and _names_mps(parent, scanned):
            return True
        if isinstance(parent, _CONDITIONAL):
            is_test = place.field == "test"
            is_whole = is_test or isinstance(parent, ast.IfExp)
            if _names_mps(parent.test, scanned) or (is_whole and _has_case(parent, scanned)):
                return True
            is_inside = is_inside or not is_test
            decided = parent if is_test else decided
    statement = _statement(decided, scanned)
    if isinstance(statement, ast.If) and _is_beside(statement, scanned):
        return True
    return _is_bound(statement, scanned, is_inside=is_inside) or _has_flag(node, statement, scanned)


# -- the branch --------------------------------------------------------------------------------------


def _names_mps(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether an expression or a simple statement names MPS, outside of choices inside of it."""
    return node in scanned.once(("names mps",), _find_mps, scanned)


def _find_mps(scanned: Scanned) -> set[ast.AST]:
    """Find the names and short texts about MPS, with the nodes around each up to the innermost choice."""
    nodes_about_mps: set[ast.AST] = set()
    if scanned.lines and not any("mps" in line.lower() or "accelerator" in line for line in scanned.lines):
        return nodes_about_mps
    for node in scanned.program.nodes:
        if not _is_mps(word(node)):
            continue
        around: ast.AST | None = node
        while around is not None and around not in nodes_about_mps:
            nodes_about_mps.add(around)
            around = None if isinstance(around, ast.IfExp) else scanned.program.parent(around)
    return nodes_about_mps


def _is_mps(text: str) -> bool:
    text = text.lower()
    return text == "current_accelerator" or (
        "mps" in text and len(text) < _LONGEST and "mps" in text.replace("-", "_").replace(":", "_").split("_")
    )


def _has_case(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether a condition, or code on either of its sides, is about MPS."""
    if isinstance(node, ast.IfExp):
        return _names_mps(node.test, scanned) or any(
            _has_case(side, scanned) if isinstance(side, ast.IfExp) else _names_mps(side, scanned)
            for side in (node.body, node.orelse)
        )
    if not isinstance(node, (ast.If, ast.While)):
        return False
    if _names_mps(node.test, scanned) or any(_says_so(each, scanned) for each in (*node.body, *node.orelse)):
        return True
    # A loop, not a recursion: a chain may have thousands of branches.
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node = node.orelse[0]
        if any(_says_so(each, scanned) for each in node.orelse):
            return True
    return False


def _says_so(statement: ast.stmt, scanned: Scanned) -> bool:
    if isinstance(statement, ast.If):
        return _names_mps(statement.test, scanned)
    simple = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
    return isinstance(statement, simple) and _names_mps(statement, scanned)


def _is_beside(statement: ast.If, scanned: Scanned) -> bool:
    """Return whether the statement before or after has a condition about MPS: ``if use_mps: ...``."""
    place = scanned.program.place(statement)
    block = getattr(place.parent, place.field, None) if place else None
    if place is None or not isinstance(block, list):
        return False
    around = block[max(0, place.position - 1) : place.position + 2]
    return any(
        isinstance(each, ast.If) and _names_mps(each.test, scanned) and not about_cuda(each.test, scanned)
        for each in around
    )


# -- the value ---------------------------------------------------------------------------------------


def _statement(node: ast.AST, scanned: Scanned) -> ast.AST:
    if isinstance(node, ast.stmt):
        return node
    parents = (place.parent for _, place in scanned.program.ancestors(node))
    return next((parent for parent in parents if isinstance(parent, ast.stmt)), node)


def _is_bound(statement: ast.AST, scanned: Scanned, *, is_inside: bool) -> bool:
    """Return whether what a statement binds is bound for MPS in another statement that is not overwritten by it."""
    bound = scanned.once(("bound for mps",), _bound_for_mps, scanned)
    is_optional = is_inside or (isinstance(statement, ast.If) and not statement.orelse)
    is_if = isinstance(statement, ast.If)
    inside = [*statement.body, *statement.orelse] if is_if else [statement]  # type: ignore[attr-defined]
    for part in (part for part in inside if isinstance(part, _BINDS)):
        for key in _keys(part, scanned):
            for other in bound.get(key, ()):
                is_later = is_optional or key[1] == "return" or other.line > part.lineno
                if other.statement is not part and is_later:
                    return True
    return False


def _keys(statement: ast.stmt, scanned: Scanned) -> Iterator[tuple[ast.AST, str]]:
    """What a statement binds, by the function or, for an attribute of ``self``, the class around it."""
    scope = scanned.program.scope(statement)
    if isinstance(statement, ast.Return):
        yield scope, "return"
        return
    targets: Iterable[ast.expr] = ()
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = (statement.target,)
    for target in targets:
        name = ast.unparse(target)
        if _is_update(statement.value, name):  # type: ignore[attr-defined]  # an assignment
            # A move of the model to MPS has no bearing on ``model = torch.compile(model)``.
            if method(statement.value) not in _MOVES:  # type: ignore[attr-defined]
                continue
            name = f"move of {name}"
        is_own = name.startswith("self.") and isinstance(scope, (ast.FunctionDef, ast.Lambda))
        yield (scanned.program.scope(scope) if is_own else scope), name


def _is_update(value: ast.expr | None, name: str) -> bool:
    parts = walk(value) if value is not None else ()
    return any(isinstance(part, (ast.Name, ast.Attribute)) and ast.unparse(part) == name for part in parts)


def _bound_for_mps(scanned: Scanned) -> dict[tuple[ast.AST, str], list[_Bound]]:
    nodes = (each for each in scanned.program.nodes if isinstance(each, _BINDS) and _is_for_mps(each, scanned))
    return group_values((key, _Bound(node.lineno, node)) for node in nodes for key in _keys(node, scanned))


def _is_for_mps(statement: ast.stmt, scanned: Scanned) -> bool:
    value = getattr(statement, "value", None)
    if isinstance(value, ast.expr) and _is_mps_alone(value, scanned):
        parent = scanned.program.parent(statement)
        return not (isinstance(parent, ast.If) and _is_after_cuda(parent, scanned))
    for _, place in scanned.program.ancestors(statement):
        if isinstance(place.parent, _FUNCTIONS):
            return False
        if isinstance(place.parent, ast.If) and _names_mps(place.parent.test, scanned):
            return not _is_after_cuda(place.parent, scanned)
    return False


def _is_after_cuda(node: ast.If, scanned: Scanned) -> bool:
    """Return whether a branch for MPS follows one for CUDA: both are a single choice, which handles no other value."""
    place = scanned.program.place(node)
    before = place.parent if place is not None and place.field == "orelse" else None
    return isinstance(before, ast.If) and about_cuda(before.test, scanned)


def _is_mps_alone(value: ast.expr, scanned: Scanned) -> bool:
    """``"mps"``, ``torch.device("mps")``, and ``"mps" if ... else device``: no CUDA in it."""
    parts = [part for part in ast.walk(value) if isinstance(part, (ast.expr))]
    if any(is_cuda(begins(part)) or "cuda" in last(part).lower() for part in parts):
        return False
    is_choice = isinstance(value, ast.IfExp) and _names_mps(value.test, scanned)
    return is_choice or _names_mps(value, scanned)


def _has_flag(node: ast.AST, statement: ast.AST, scanned: Scanned) -> bool:
    """Return whether the function has a flag for MPS as well as for CUDA: ``use_mps``, ``--mps``."""
    if isinstance(node, ast.keyword) or isinstance(
        scanned.program.parent(node) if isinstance(node, ast.expr) else None, ast.keyword
    ):
        kind = "option"
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, _CONDITIONS):
        kind = "flag"
    else:
        return False
    flags = scanned.once(("flags of mps",), _flags, scanned)
    return (scanned.program.scope(statement), kind) in flags


def _flags(scanned: Scanned) -> set[tuple[ast.AST, str]]:
    """The functions that have a flag, or an option of the command line, for MPS."""
    flags: set[tuple[ast.AST, str]] = set()
    for node in scanned.program.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, _CONDITIONS):
            is_named = any(_is_mps(last(target)) for target in node.targets)
            asks = _names_mps(node.value, scanned) and any(
                isinstance(part, ast.Compare) or last(part).startswith(("is_", "has_"))
                for part in ast.walk(node.value)
                if isinstance(part, ast.expr)
            )
            if is_named or asks:
                flags.add((scanned.program.scope(node), "flag"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.startswith("-") and _is_mps(text.strip("-")):
                flags.add((scanned.program.scope(node), "option"))
    return flags
