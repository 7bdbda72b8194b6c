"""OC219: .numpy() on a tensor that is on MPS."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule, argument, chain, method

_LEAVES = {"cpu", "numpy", "tolist", "item"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``.numpy()`` where the same expression put the tensor on MPS."""
    if not isinstance(node, ast.Call) or method(node) != "numpy" or scanned.dotted(node.func):
        return
    for call in chain(node.func):
        if method(call) in _LEAVES:
            return
        given = [argument(call, None, "device")]
        if method(call) == "to":
            given += call.args[:1]
        devices = [scanned.mac.constant(value) for value in given if value is not None]
        if any(isinstance(device, str) for device in devices):
            if any(str(device).startswith("mps") for device in devices):
                yield Hit(
                    node=node,
                    message=".numpy() of a tensor on MPS raises",
                    hint=".cpu().numpy()",
                    prints="TypeError: can't convert mps:0 device type tensor to numpy.",
                )
            return


RULE = ScanRule(
    id="OC219",
    severity="error",
    nodes=(ast.Call,),
    words=("numpy mps",),
    carried=True,
    names={ast.Call: frozenset({"numpy"})},
    check=check,
)
