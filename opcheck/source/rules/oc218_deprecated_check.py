"""OC218: an old way of asking whether there is MPS."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import torch_name
from opcheck.source.edits import Fix, replace
from opcheck.source.rule import Hit, Scanned, ScanRule


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``torch.has_mps`` and ``getattr(torch, "has_mps", False)``."""
    asked = isinstance(node, ast.Attribute) and scanned.dotted(node) == "torch.has_mps"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        name = node.args[1]
        asked = (
            node.func.id in {"getattr", "hasattr"}
            and scanned.dotted(node.args[0]) == "torch"
            and isinstance(name, ast.Constant)
            and name.value == "has_mps"
        )
    if asked:
        yield Hit(
            node=node,
            fix=_fix(node, scanned),
            message="torch.has_mps is deprecated, and says how torch was built, not what the Mac "
            "has",
            hint="torch.backends.mps.is_available()",
        )


def _fix(node: ast.AST, scanned: Scanned) -> Fix | None:
    torch = torch_name(scanned)
    return Fix((replace(node, f"{torch}.backends.mps.is_available()"),)) if torch else None


RULE = ScanRule(
    id="OC218",
    severity="warning",
    fix="safe",
    nodes=(ast.Attribute, ast.Call),
    words=("has_mps",),
    names={ast.Call: frozenset({"getattr", "hasattr"}), ast.Attribute: frozenset({"has_mps"})},
    check=check,
)
