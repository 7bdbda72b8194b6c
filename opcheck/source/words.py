"""What a name, a text, a comparison, a handler or a block says by itself."""

from __future__ import annotations

import ast

from opcheck.source import tables


class Unknown:
    """A value that the source does not tell."""


UNKNOWN = Unknown()

#: Of a constant, that many characters are shown, or a number of that many bits.
_SHOWN = 80
_BITS = 1000

_NEGATIVE = (ast.NotEq, ast.NotIn, ast.IsNot)


def device_compared(kind: type[ast.cmpop], ones: list[object], others: list[object]) -> bool | None:
    """A device that nobody knows, beside a text: on a Mac that is ported to it says mps."""
    known = [one for one in (*ones, *others) if one is not UNKNOWN]
    if len(known) != 1 or kind not in {ast.Eq, ast.NotEq, ast.In, ast.NotIn}:
        return None
    texts = known[0] if isinstance(known[0], tuple) else (known[0],)
    if texts and all(is_cuda(text) or text in tables.NOT_ON_A_MAC for text in texts):
        return kind in _NEGATIVE
    return kind not in _NEGATIVE if "mps" in texts else None


def names(node: ast.AST, name: str) -> bool:
    """Whether a node is the name, or an attribute of that name."""
    return (isinstance(node, ast.Name) and node.id == name) or (
        isinstance(node, ast.Attribute) and node.attr == name
    )


def last(node: ast.expr) -> str:
    """The last part of a name: ``c`` of ``a.b.c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_cuda(constant: object) -> bool:
    """Whether a constant is the text of a CUDA device."""
    return isinstance(constant, str) and (constant == "cuda" or constant.startswith("cuda:"))


def begins(node: ast.expr) -> str:
    """How a text that is put together begins: ``cuda:`` of ``f"cuda:{rank}"``."""
    while True:
        if isinstance(node, ast.JoinedStr) and node.values:
            node = node.values[0]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr != "format":
                return ""
            node = node.func.value
        else:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            return str(node.value) if is_text else ""  # type: ignore[attr-defined]  # a Constant


def quoted(constant: object) -> str:
    """A constant as a message shows it: at most 80 characters, and never a number of 5,000 digits."""
    if isinstance(constant, int) and constant.bit_length() > _BITS:
        return "a number of hundreds of digits"
    if isinstance(constant, (str, bytes)):
        constant = constant[:_SHOWN]
    return repr(constant)


def by_name(node: ast.expr) -> bool | None:
    """A flag says by its name that it is about CUDA: ``use_cuda``, ``args.no_cuda``, ``x.is_cuda``."""
    name = last(node.func if isinstance(node, ast.Call) else node).lower()
    if name == "type_checking":
        return False
    if "cuda" in name or "nccl" in name:
        return any(word in name for word in ("no_cuda", "not_cuda", "disable", "without"))
    return True if name == "is_mps" else None


def caught(handler: ast.ExceptHandler) -> set[str]:
    """The names of the exceptions that a handler takes."""
    if handler.type is None:
        return {"BaseException"}
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return set(map(last, kinds))


def leaves(block: list[ast.stmt]) -> bool:
    """Whether a block ends the function or the loop without an error."""
    if not block:
        return False
    end = block[-1]
    if isinstance(end, ast.Raise):
        raised = end.exc.func if isinstance(end.exc, ast.Call) else end.exc
        return raised is not None and "skip" in last(raised).lower()
    if isinstance(end, ast.Expr) and isinstance(end.value, ast.Call):
        return "skip" in last(end.value.func).lower()
    return isinstance(end, (ast.Return, ast.Continue, ast.Break))
