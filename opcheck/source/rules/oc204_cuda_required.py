"""OC204: the program refuses to go on without CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import torch_name
from opcheck.source.edits import Fix, insert_after
from opcheck.source.handled import handles_mps
from opcheck.source.program import walk
from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.words import caught, last, tells_failure

_EXITS = {"sys.exit", "exit", "quit", "os._exit"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``assert`` of CUDA, and ``if not CUDA: raise``."""
    if isinstance(node, ast.Assert):
        refuses = _is_about_cuda(node.test) and scanned.mac.truth(node.test) is False
    elif isinstance(node, ast.If):
        refuses = (
            _is_about_cuda(node.test)
            and scanned.mac.truth(node.test) is True
            and bool(node.body)
            and _ends(node.body[-1], scanned)
        )
    else:
        return
    may = isinstance(node, ast.If) and not refuses and _may_refuse(node, scanned)
    if (refuses or may) and not _is_caught(node, scanned):
        yield Hit(
            node=node.test,
            severity="note" if may else None,
            fix=_fix(node, scanned),
            message="where the rest of the condition holds, the program ends here without CUDA"
            if may
            else "without CUDA the program ends here: the condition fails on a Mac",
            hint="ask for what is needed, not for CUDA: x.device.type in {...}, or drop the check",
        )


def _may_refuse(node: ast.If, scanned: Scanned) -> bool:
    """``if dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(): raise``."""
    parts = node.test.values if isinstance(node.test, ast.BoolOp) else []
    return (
        isinstance(getattr(node.test, "op", None), ast.And)
        and _ends(node.body[-1], scanned)
        and scanned.mac.truth(node.test) is None
        and not handles_mps(node, scanned)
        and any(scanned.mac.truth(part) is True and _is_about_cuda(part) for part in parts)
    )


def _fix(node: ast.Assert | ast.If, scanned: Scanned) -> Fix | None:
    """Let MPS pass, too; what follows may still need CUDA."""
    torch, test = torch_name(scanned), node.test
    asked = test.operand if isinstance(test, ast.UnaryOp) else test
    is_plain = (
        isinstance(asked, ast.Call) and scanned.dotted(asked.func) == "torch.cuda.is_available"
    )
    if not torch or not is_plain:
        return None
    word = "and not" if isinstance(node, ast.If) else "or"
    return Fix((insert_after(test, f" {word} {torch}.backends.mps.is_available()"),), "unsafe")


def _is_about_cuda(test: ast.expr) -> bool:
    for part in walk(test):
        word = _word(part).lower()
        if "cuda" in word or "nccl" in word:
            return True
    return False


def _is_caught(node: ast.Assert | ast.If, scanned: Scanned) -> bool:
    """Return whether a handler in the same function catches what the branch raises, and goes on without it."""
    end = node.body[-1] if isinstance(node, ast.If) else node
    if not isinstance(end, (ast.Raise, ast.Assert)):
        return False
    exception = end.exc if isinstance(end, ast.Raise) else None
    raised = exception.func if isinstance(exception, ast.Call) else exception
    name = "AssertionError" if raised is None else last(raised)
    for _, place in scanned.program.ancestors(node):
        if isinstance(place.parent, ast.Try) and place.field == "body":
            for handler in place.parent.handlers:
                if caught(handler) & {name, "Exception", "BaseException"}:
                    return not _ends(handler.body[-1], scanned) and not any(
                        map(tells_failure, ast.walk(handler))
                    )
        if place.parent is place.scope:
            break
    return False


def _word(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, (str, bytes)) else ""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _ends(statement: ast.stmt, scanned: Scanned) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return raised is None or "skip" not in ast.unparse(raised).lower()
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    called = statement.value.func
    name = scanned.dotted(called) or (called.id if isinstance(called, ast.Name) else "")
    return name in _EXITS


RULE = ScanRule(
    id="OC204",
    severity="error",
    fix="unsafe",
    words=("cuda", "CUDA", "Cuda", "nccl", "NCCL", "Nccl"),
    nodes=(ast.Assert, ast.If),
    check=check,
)
