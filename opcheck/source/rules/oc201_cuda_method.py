"""OC201: .cuda() on a tensor or a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule, method


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of a method ``cuda`` of anything that is not a module of another library."""
    if not isinstance(node, ast.Call) or method(node) != "cuda":
        return
    if isinstance(node.func, ast.Attribute) and scanned.dotted(node.func.value):
        return
    yield Hit(
        node=node,
        message=".cuda() moves to CUDA, which a Mac does not have",
        hint="take the device as a value: .to(device)",
        prints="AssertionError: Torch not compiled with CUDA enabled",
    )


RULE = ScanRule(
    id="OC201",
    severity="error",
    nodes=(ast.Call,),
    check=check,
)
