"""OC205: a function of torch.cuda that raises without CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import guarded_for_mps
from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.tables import INSTEAD, RAISES


def torch_cuda(node: ast.AST, scanned: Scanned) -> str:
    """What comes after ``torch.cuda.`` in a call; empty: another call."""
    name = scanned.dotted(node.func) if isinstance(node, ast.Call) else ""
    rest = name.removeprefix("torch.cuda.") if name.startswith("torch.cuda.") else ""
    # The same functions, by the modules that they are written in.
    for module in ("memory.", "random.", "streams.", "graphs."):
        rest = rest.removeprefix(module)
    return rest


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of what the table says raises."""
    name = torch_cuda(node, scanned)
    if name in RAISES:
        instead = INSTEAD.get(name, "")
        yield Hit(
            node=node,
            fix=guarded_for_mps(node, name, scanned),
            message=f"torch.cuda.{name} fails without CUDA",
            hint=f"on MPS: {instead}"
            if instead
            else "call it only where torch.cuda.is_available()",
            prints=RAISES[name] if ": " in RAISES[name] else "",
        )


RULE = ScanRule(
    id="OC205",
    severity="error",
    fix="safe",
    nodes=(ast.Call,),
    words=("cuda",),
    names={ast.Call: frozenset(name.rpartition(".")[2] for name in RAISES)},
    check=check,
)
