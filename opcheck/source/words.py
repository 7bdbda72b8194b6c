"""Functions about a piece of syntax that need no other part of the file."""

import ast

from opcheck.source import call_tables


class Unknown:
    """A value that the source does not determine."""


UNKNOWN = Unknown()

#: A message shows so many characters of a constant, and no number of more bits.
_SHOWN = 80
_BITS = 1000

_NEGATIVE = (ast.NotEq, ast.NotIn, ast.IsNot)
#: The words of a flag whose only meaning is that the program runs on MPS: ``use_mps``, ``is_torch_mps_available``.
_MPS_FLAG = call_tables.read_words("mps_flag")


def compare_device(kind: type[ast.cmpop], left: list[object], right: list[object]) -> bool | None:
    """Return the result of comparing an unknown device with a text, in a program that runs on MPS."""
    values = [value for value in (*left, *right) if value is not UNKNOWN]
    if len(values) != 1 or kind not in {ast.Eq, ast.NotEq, ast.In, ast.NotIn}:
        return None
    texts = values[0] if isinstance(values[0], tuple) else (values[0],)
    if texts and all(is_cuda(text) or text in call_tables.NOT_ON_A_MAC for text in texts):
        return kind in _NEGATIVE
    return kind not in _NEGATIVE if "mps" in texts else None


def last(node: ast.AST) -> str:
    """Return the last part of a name, ``c`` of ``a.b.c``; empty for other nodes."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def imported_modules(node: ast.AST) -> list[str]:
    """Return the modules, and what may be modules, that a statement imports, but for relative ones."""
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def word(node: ast.AST) -> str:
    """Return the last part of a name, or the text of a constant; empty for other nodes."""
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, (str, bytes)) else ""
    return last(node)


def is_cuda(constant: object) -> bool:
    """Return whether a constant is the text of a CUDA device."""
    return isinstance(constant, str) and (constant == "cuda" or constant.startswith("cuda:"))


def begins(node: ast.expr) -> str:
    """Return the beginning of a composed text: ``cuda:`` of ``f"cuda:{rank}"``."""
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


def quote(constant: object) -> str:
    """Format a constant for a message: at most 80 characters, and no number of 5,000 digits."""
    if isinstance(constant, int) and constant.bit_length() > _BITS:
        return "a number of hundreds of digits"
    if isinstance(constant, (str, bytes)):
        constant = constant[:_SHOWN]
    return repr(constant)


def by_name(node: ast.expr) -> bool | None:
    """Return the value on a Mac of a flag that is named after CUDA or MPS: ``args.no_cuda``, ``on_mps``."""
    name = last(node.func if isinstance(node, ast.Call) else node).lower()
    if name == "type_checking":
        return False
    if "cuda" in name or "nccl" in name:
        return any(word in name for word in ("no_cuda", "not_cuda", "disable", "without"))
    words = set(name.split("_"))
    others = words - _MPS_FLAG
    if "mps" not in words or not others <= {"no", "not"}:
        return None
    return not others


def compared_by_name(kind: type[ast.cmpop], left: ast.expr, right: ast.expr) -> bool | None:
    """Return the result of comparing with a member that is named after a device: ``state == Backend.MPS``."""
    both = {last(left).lower(), last(right).lower()}
    device = both & {"cuda", "mps"}
    if len(device) != 1 or "" in both or kind not in {ast.Eq, ast.NotEq, ast.Is, ast.IsNot}:
        return None
    return (device == {"mps"}) is (kind not in _NEGATIVE)


def find_called(statement: ast.AST) -> ast.expr | None:
    """Return what a statement calls and nothing else; None for any other statement."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return call.func if isinstance(call, ast.Call) else None


def find_raised(statement: ast.Raise) -> ast.expr | None:
    """Return the exception that a statement raises, without its arguments."""
    return statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc


def find_caught(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the exceptions that a handler catches."""
    if handler.type is None:
        return {"BaseException"}
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return set(map(last, kinds))


def tells_failure(node: ast.AST) -> bool:
    """Return whether a part of a handler raises, or prints the traceback: the program has failed there."""
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Attribute) and node.attr in {"print_exc", "format_exc"})


def leaves(block: list[ast.stmt]) -> bool:
    """Return whether a block ends the function or the loop without an error."""
    if not block:
        return False
    end = block[-1]
    ending = find_raised(end) if isinstance(end, ast.Raise) else find_called(end)
    if ending is not None:
        return "skip" in last(ending).lower()
    return isinstance(end, (ast.Return, ast.Continue, ast.Break))
