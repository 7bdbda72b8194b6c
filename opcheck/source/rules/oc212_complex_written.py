"""OC212: complex numbers, for a Mac whose torch or macOS has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.common.versions import Target, Version
from opcheck.source.rule import Hit, Scanned, ScanRule, argument

_TORCH, _MACOS = Version(2, 3), Version(14)
_DTYPES = {"torch.complex64", "torch.cfloat"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Imaginary literals beside calls of torch, and dtype=torch.complex64."""
    if isinstance(node, ast.Call):
        dtype = argument(node, None, "dtype")
        is_complex = scanned.dotted(dtype) in _DTYPES
    else:
        literal = isinstance(node, ast.Constant) and isinstance(node.value, complex)
        is_complex = literal and _with_torch(node, scanned)
    if is_complex:
        yield Hit(
            node=node,
            message=f"complex numbers on MPS need torch {_TORCH} and macOS {_MACOS.major}",
            hint="keep the real and the imaginary part as two tensors: opcheck explain",
        )


def _applies(target: Target) -> bool:
    return target.torch < _TORCH or target.macos < _MACOS


def _with_torch(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether the literal is in one expression with a call of torch."""
    top = node
    for _, place in scanned.program.ancestors(node):
        if not isinstance(place.parent, ast.expr):
            break
        top = place.parent
    return scanned.once(("calls torch", top), _calls_torch, top, scanned)


def _calls_torch(node: ast.AST, scanned: Scanned) -> bool:
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(scanned.dotted(call.func).startswith("torch.") for call in calls)


RULE = ScanRule(
    id="OC212",
    severity="warning",
    nodes=(ast.Call, ast.Constant),
    applies=_applies,
    names={ast.Call: frozenset({"dtype"})},
    check=check,
)
