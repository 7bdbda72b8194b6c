"""OC225: the type of a tensor as a text, given to type()."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.edits import Fix, replace_method
from opcheck.source.rule import Hit, Scanned, ScanRule, method, torch_alias


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``x.type(y.type())``, also through a name."""
    if (
        not isinstance(node, ast.Call)
        or method(node) != "type"
        or len(node.args) != 1
        or node.keywords
    ):
        return
    given = node.args[0]
    written = _is_type(given)
    # The argument, and not the call: a chain of calls begins many lines above.
    origin: ast.AST = given
    if not written:
        bindings = scanned.program.bindings(given)
        values = [binding.value for binding in bindings]
        if not values or not all(value is not None and _is_type(value) for value in values):
            return
        origin = values[0] or node
    if scanned.dotted(node.func) or not torch_alias(scanned):
        return
    yield Hit(
        node=origin,
        use=node,
        message='the type of a tensor on MPS is "torch.mps.FloatTensor", which type() refuses',
        hint=".to(y) takes the dtype and the device of a tensor; .to(y.dtype) the dtype alone",
        prints="ValueError: invalid type: 'torch.mps.FloatTensor'",
        fix=_fix(node, given, scanned) if written else None,
    )


def _is_type(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and method(node) == "type"
        and not node.args
        and not node.keywords
    )


def _fix(node: ast.Call, given: ast.expr, scanned: Scanned) -> Fix | None:
    """``x.to(y)`` does the same on the CPU and on CUDA: the dtype and the device of y."""
    if not (isinstance(node.func, ast.Attribute) and isinstance(given, ast.Call)):
        return None
    source = given.func.value if isinstance(given.func, ast.Attribute) else None
    if source is None or "\n" in scanned.text(source):
        return None
    return Fix((replace_method(node, "type", f"to({scanned.text(source)})"),))


RULE = ScanRule(
    id="OC225",
    severity="error",
    nodes=(ast.Call,),
    words=(r"\.[\\\s]*type\b",),
    fix="safe",
    names={ast.Call: frozenset({"type"})},
    check=check,
)
