"""OC213: pinned memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import torch_name
from opcheck.source.edits import Fix, replace
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``pin_memory=True`` in a call, and ``.pin_memory()``."""
    if not isinstance(node, ast.Call):
        return
    asked = argument(node, None, "pin_memory")
    if asked is not None and scanned.mac.constant(asked) is True:
        called = scanned.dotted(node.func).rpartition(".")[2] or method(node)
        called = called or getattr(node.func, "id", "")
        loader = "; a DataLoader leaves it out on a Mac, and warns" * called.endswith("DataLoader")
        yield Hit(
            node=asked,
            fix=_fix(asked, scanned),
            message=f"pinned memory is for CUDA, and gains nothing on a Mac{loader}",
            hint="pin_memory=torch.cuda.is_available()",
        )
    elif method(node) == "pin_memory" and not node.args and not scanned.dotted(node.func):
        yield Hit(
            node=node,
            severity="warning",
            message="a tensor is pinned here: older releases raise on a Mac, newer gain nothing",
            hint="pin it only where torch.cuda.is_available()",
        )


def _fix(asked: ast.expr, scanned: Scanned) -> Fix | None:
    torch = torch_name(scanned)
    is_constant = isinstance(asked, ast.Constant) and torch
    return Fix((replace(asked, f"{torch}.cuda.is_available()"),)) if is_constant else None


RULE = ScanRule(
    id="OC213",
    severity="note",
    fix="safe",
    nodes=(ast.Call,),
    words=("pin_memory",),
    names={ast.Call: frozenset({"pin_memory"})},
    check=check,
)
