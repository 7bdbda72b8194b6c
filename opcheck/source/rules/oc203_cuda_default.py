"""OC203: the default of an option or a parameter is CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.mac import Value
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method
from opcheck.source.words import quoted

_OPTIONS = {"add_argument", "option", "Option", "Argument", "field", "Field", "add_option"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Defaults of command lines, parameters and fields that are ``cuda``."""
    if isinstance(node, ast.Call):
        name = scanned.dotted(node.func).rpartition(".")[2] or method(node)
        if name in _OPTIONS:
            yield from _default_hits(_cuda(argument(node, None, "default"), scanned), "option")
    elif isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            yield from _default_hits(_cuda(default, scanned), "parameter")
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        in_class = isinstance(scanned.program.parent(node), ast.ClassDef)
        if in_class and "device" in node.target.id:
            yield from _default_hits(_cuda(node.value, scanned), "field")


def _cuda(default: ast.expr | None, scanned: Scanned) -> Value | None:
    """The text in ``"cuda"`` or ``torch.device("cuda")``."""
    if isinstance(default, ast.Call) and scanned.dotted(default.func) == "torch.device":
        default = argument(default, 0, "type")
    return scanned.mac.cuda(default)


def _default_hits(value: Value | None, what: str) -> Iterator[Hit]:
    if value is not None:
        yield Hit(
            node=value.origin,
            message=f"the default of the {what} is {quoted(value.constant)}: on a Mac it must be "
            "given",
            hint='make the default "auto" or None, and choose what the machine has',
        )


RULE = ScanRule(
    id="OC203",
    severity="warning",
    nodes=(ast.Call, ast.arguments, ast.AnnAssign),
    check=check,
)
