"""OC228: nn.DataParallel, which moves no inputs on a Mac."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.program import walk
from opcheck.source.rule import Hit, Scanned, ScanRule, method

_NAMES = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
    }
)
_MOVES = {"cuda", "to"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Modules that are wrapped; a warning where the file moves nothing but the module itself."""
    if not isinstance(node, ast.Call) or scanned.dotted(node.func) not in _NAMES:
        return
    yield Hit(
        node=node,
        severity=None if _moves_something_else(node, scanned) else "warning",
        message="on a Mac nn.DataParallel calls the module as it is: inputs stay on the device that they are on",
        hint="move the inputs, x.to(device), or wrap only where torch.cuda.device_count() > 1",
        prints="RuntimeError: Input type (torch.FloatTensor) and weight type (MPSFloatType) should be the same",
    )


def _moves_something_else(call: ast.Call, scanned: Scanned) -> bool:
    """Return whether a call in the file moves something that is not the wrapped module."""
    parent = scanned.program.parent(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    modules = {ast.dump(part) for part in (*call.args[:1], *targets)}
    # A target is stored where a receiver is loaded.
    modules = {text.replace("Store()", "Load()") for text in modules}
    return any(
        method(each) in _MOVES
        and isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and not any(part is call or ast.dump(part) in modules for part in walk(each.func.value))
        for each in scanned.program.nodes
    )


RULE = ScanRule(
    id="OC228",
    severity="note",
    nodes=(ast.Call,),
    words=("DataParallel",),
    names={ast.Call: frozenset({"DataParallel"})},
    check=check,
)
