"""OC206: a function of torch.cuda that does nothing without CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import called_on_mps
from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.rules.oc205_torch_cuda_raises import torch_cuda
from opcheck.source.tables import IDLE


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of what the table says does nothing."""
    name = torch_cuda(node, scanned)
    if name in IDLE:
        instead = IDLE[name]
        yield Hit(
            node=node,
            fix=called_on_mps(node, name, scanned),
            message=f"torch.cuda.{name} does nothing for MPS",
            hint=f"on MPS: {instead}" if instead else "it may stay",
        )


RULE = ScanRule(
    id="OC206",
    severity="note",
    fix="safe",
    nodes=(ast.Call,),
    words=("cuda",),
    names={ast.Call: frozenset(name.rpartition(".")[2] for name in IDLE)},
    check=check,
)
