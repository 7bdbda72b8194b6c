"""OC208: processes that talk through NCCL."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.common.vocabulary import Severity
from opcheck.source.mac import Value
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method

_MAKES_GROUPS = {"init_process_group", "new_group", "init_device_mesh", "init_distributed"}
_OPTIONS = {"add_argument", "option", "Option", "add_option"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Groups of processes and options whose backend is ``nccl``."""
    if isinstance(node, ast.Call):
        name = scanned.dotted(node.func).rpartition(".")[2] or method(node)
        if isinstance(node.func, ast.Name):
            name = name or node.func.id
        if name in _MAKES_GROUPS:
            position = 0 if name == "init_process_group" else None
            value = _nccl(argument(node, position, "backend", "dist_backend"), scanned)
            yield from _nccl_hits(value, "torch for macOS has no NCCL", None, node)
        elif (given := argument(node, None, "process_group_backend")) is not None:
            yield from _nccl_hits(_nccl(given, scanned), "torch for macOS has no NCCL", None, node)
        elif name in _OPTIONS:
            value = _nccl(argument(node, None, "default"), scanned)
            yield from _nccl_hits(
                value, "the default is NCCL, which macOS has not", "warning", None
            )
    elif isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            value = _nccl(default, scanned)
            yield from _nccl_hits(
                value, "the default is NCCL, which macOS has not", "warning", None
            )


def _nccl(node: ast.expr | None, scanned: Scanned) -> Value | None:
    values = scanned.mac.values(node) if node is not None else ()
    named = (v for v in values if isinstance(v.constant, str) and v.constant.lower() == "nccl")
    return next(named, None)


def _nccl_hits(
    value: Value | None, message: str, severity: Severity | None, use: ast.AST | None
) -> Iterator[Hit]:
    if value is not None:
        yield Hit(
            node=value.origin,
            use=use,
            message=message,
            severity=severity,
            hint="a Mac has one GPU: leave the group out where the world is one process, or gloo "
            "on the CPU",
        )


RULE = ScanRule(
    id="OC208",
    severity="error",
    words=("nccl", "NCCL", "Nccl"),
    carried=True,
    nodes=(ast.Call, ast.arguments),
    names={ast.Call: frozenset({*_MAKES_GROUPS, *_OPTIONS, "process_group_backend"})},
    check=check,
)
