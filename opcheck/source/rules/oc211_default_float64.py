"""OC211: float64 as the default dtype of all tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule, argument

_SETS = {"torch.set_default_dtype", "torch.set_default_tensor_type"}
_DOUBLE = {"torch.float64", "torch.double", "torch.DoubleTensor"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls that make float64 the default."""
    if not isinstance(node, ast.Call) or scanned.dotted(node.func) not in _SETS:
        return
    given = argument(node, 0, "d", "t")
    if given is None:
        return
    text = scanned.dotted(given) or scanned.mac.constant(given)
    if text in _DOUBLE:
        yield Hit(
            node=node,
            message="every tensor is float64 from here on, which MPS has not",
            hint="leave the default, and cast on the CPU where double precision is needed",
        )


RULE = ScanRule(
    id="OC211",
    severity="error",
    nodes=(ast.Call,),
    words=("set_default",),
    names={ast.Call: frozenset(name.rpartition(".")[2] for name in _SETS)},
    check=check,
)
