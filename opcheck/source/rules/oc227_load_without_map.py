"""OC227: torch.load without map_location."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import torch_name
from opcheck.source.edits import Fix, insert_after
from opcheck.source.rule import Hit, Scanned, ScanRule, argument


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of ``torch.load`` that do not say where the tensors go."""
    if not isinstance(node, ast.Call) or scanned.dotted(node.func) != "torch.load":
        return
    if argument(node, 1, "map_location") is not None or any(
        word.arg is None for word in node.keywords
    ):
        return
    if not node.args or any(isinstance(part, ast.Starred) for part in node.args):
        return
    yield Hit(
        node=node,
        message="torch.load without map_location: a file that was saved on CUDA fails on a Mac",
        hint='map_location="cpu", then move the model',
        prints="RuntimeError: Attempting to deserialize object on a CUDA device but "
        "torch.cuda.is_available() is False.",
        fix=_fix(node, scanned),
    )


def _fix(node: ast.Call, scanned: Scanned) -> Fix | None:
    """To the CPU where there is no CUDA; with CUDA the tensors come to where they were saved, as before."""
    torch = torch_name(scanned)
    place = f'None if {torch}.cuda.is_available() else "cpu"'
    edit = insert_after(node.args[0], f", map_location={place}")
    return Fix((edit,), "unsafe") if torch else None


RULE = ScanRule(
    id="OC227",
    severity="note",
    nodes=(ast.Call,),
    words=(r"torch \bload\b",),
    fix="unsafe",
    names={ast.Call: frozenset({"load"})},
    check=check,
)
