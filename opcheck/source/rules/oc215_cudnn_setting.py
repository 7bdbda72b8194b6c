"""OC215: settings of cuDNN and of CUDA's matrix products."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule

_PREFIXES = ("torch.backends.cudnn.", "torch.backends.cuda.")


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Assignments to attributes of these modules."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = [scanned.dotted(target) for target in targets]
    setting = next((name for name in names if name.startswith(_PREFIXES)), "")
    if setting:
        yield Hit(
            node=node,
            message=f"{setting} has no effect on MPS",
            hint="it may stay; whether a run is deterministic on a Mac, it does not say",
        )


RULE = ScanRule(
    id="OC215",
    severity="note",
    nodes=(ast.Assign,),
    words=("cudnn", "cuda"),
    check=check,
)
