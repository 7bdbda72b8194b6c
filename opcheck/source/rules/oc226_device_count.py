"""OC226: the number of CUDA devices, used as a number."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.words import last

_MESSAGES = {
    "print",
    "info",
    "warning",
    "debug",
    "warn",
    "print0",
    "log",
    "max",
    "bool",
    "str",
    "format",
}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``torch.cuda.device_count()`` where it is not compared, printed or a condition."""
    if not isinstance(node, ast.Call) or scanned.dotted(node.func) != "torch.cuda.device_count":
        return
    parent = scanned.program.parent(node)
    if isinstance(
        parent, (ast.Compare, ast.If, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.FormattedValue)
    ):
        return
    if isinstance(parent, ast.Call) and last(parent.func) in _MESSAGES:
        return
    divides = isinstance(parent, ast.BinOp) and isinstance(
        parent.op, (ast.Div, ast.FloorDiv, ast.Mod)
    )
    by_zero = divides and parent.right is node  # type: ignore[union-attr]  # a BinOp
    yield Hit(
        node=node,
        severity="error" if by_zero else None,
        message="torch.cuda.device_count() is 0 on a Mac" + ": the division fails" * by_zero,
        hint="a Mac has one GPU: max(1, torch.cuda.device_count())",
        prints="ZeroDivisionError" if by_zero else "",
    )


RULE = ScanRule(
    id="OC226",
    severity="warning",
    nodes=(ast.Call,),
    words=("device_count",),
    names={ast.Call: frozenset({"device_count"})},
    check=check,
)
