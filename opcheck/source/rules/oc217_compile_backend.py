"""OC217: a backend of torch.compile that a Mac does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule, argument

_LACKING = {
    "mps": "torch.compile has no backend of the name mps",
    "cudagraphs": "the backend cudagraphs is for CUDA",
    "tensorrt": "TensorRT is for CUDA",
    "torch_tensorrt": "TensorRT is for CUDA",
}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``torch.compile(backend=...)`` with a name of the table."""
    if not isinstance(node, ast.Call) or scanned.dotted(node.func) != "torch.compile":
        return
    backend = argument(node, None, "backend")
    name = scanned.mac.constant(backend) if backend is not None else None
    if isinstance(name, str) and name in _LACKING:
        yield Hit(
            node=node,
            message=_LACKING[name],
            hint="leave the backend out (Inductor), or aot_eager: opcheck compile says what works",
        )


RULE = ScanRule(
    id="OC217",
    severity="error",
    nodes=(ast.Call,),
    words=(r"backend \bcompile\b",),
    names={ast.Call: frozenset({"compile"})},
    check=check,
)
