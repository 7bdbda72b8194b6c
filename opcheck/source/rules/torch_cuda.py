"""What a program calls, reads and sets in torch.cuda and its settings."""

import ast
import re
from collections.abc import Iterator

from opcheck.common.versions import Version
from opcheck.source.call_tables import IDLE, INSTEAD, RAISES, find_error, read_words
from opcheck.source.devices import called_on_mps, torch_name
from opcheck.source.edits import Fix, replace
from opcheck.source.rule import Hit, Scanned, hit, rule
from opcheck.source.words import last

# -- OC205: a function of torch.cuda that raises without CUDA --------------------------------------


def torch_cuda(node: ast.AST, scanned: Scanned) -> str:
    """What comes after ``torch.cuda.`` in a call; empty: another call."""
    name = scanned.dotted_name(node.func) if isinstance(node, ast.Call) else ""
    rest = name.removeprefix("torch.cuda.") if name.startswith("torch.cuda.") else ""
    # The same functions, by the modules that they are written in.
    return re.sub(r"^(memory|random|streams|graphs)\.", "", rest)


@rule("OC205", calls={name.rpartition(".")[2] for name in RAISES})
def find_raising_calls(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls of the names that raise."""
    name = torch_cuda(node, scanned)
    if name in RAISES:
        fix, prints = _fix_call(node, name, scanned), find_error(name, scanned.target)
        otherwise = "call it only where torch.cuda.is_available()"
        yield _report(
            node, name, "fails without CUDA", INSTEAD.get(name, ""), otherwise, fix, prints
        )


def _report(
    node: ast.Call,
    name: str,
    what: str,
    instead: str,
    otherwise: str,
    fix: Fix | None,
    prints: str = "",
) -> Hit:
    hint = f"on MPS: {instead}" if instead else otherwise
    return Hit(node=node, fix=fix, message=f"torch.cuda.{name} {what}", hint=hint, prints=prints)


def _fix_call(node: ast.AST, name: str, scanned: Scanned) -> Fix | None:
    """The same of MPS: two branches for a statement, ``torch.mps.Event`` for an event.

    torch.mps.Event came with 2.1 (torch/mps/event.py of the wheels) and takes enable_timing alone.
    """
    if name == "set_device":
        return _guard(node, scanned)
    if name != "Event" or not isinstance(node, ast.Call):
        return called_on_mps(node, name, scanned)
    torch = torch_name(scanned)
    timed = not node.args and all(keyword.arg == "enable_timing" for keyword in node.keywords)
    if not torch or not timed:
        return None
    available = f"{torch}.backends.mps.is_available()"
    event = replace(node.func, f"({torch}.mps if {available} else {torch}.cuda).Event")
    return Fix((event,), since=Version(2, 1))


def _guard(node: ast.AST, scanned: Scanned) -> Fix | None:
    """``set_device`` behind a check for CUDA; unsafe, because the program continues where it failed before."""
    statement, torch = scanned.program.parent(node), torch_name(scanned)
    line = scanned.lines[getattr(node, "lineno", 1) - 1]
    indent = line[: len(line) - len(line.lstrip())]
    is_first = getattr(statement, "col_offset", -1) == len(indent.encode()) and ";" not in line
    text = scanned.text(node)
    if not isinstance(statement, ast.Expr) or not torch or not is_first or "\n" in text:
        return None
    deeper = f"{indent}\t" if "\t" in indent else f"{indent}    "
    guarded = f"if {torch}.cuda.is_available():\n{deeper}{text}"
    return Fix((replace(statement, guarded),), "unsafe", gate=True)


# -- OC206: a function of torch.cuda that does nothing without CUDA --------------------------------


@rule("OC206", calls={name.rpartition(".")[2] for name in IDLE})
def find_idle_calls(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls of the names that do nothing."""
    name = torch_cuda(node, scanned)
    if name in IDLE:
        fix = called_on_mps(node, name, scanned)
        yield _report(node, name, "does nothing for MPS", IDLE[name], "it may stay", fix)


# -- OC215: settings of cuDNN and of CUDA's matrix products ----------------------------------------

_PREFIXES = ("torch.backends.cudnn.", "torch.backends.cuda.")


@rule("OC215")
def find_cudnn_settings(node: ast.Assign, scanned: Scanned) -> Iterator[Hit]:
    """Assignments to attributes of these modules."""
    names = [scanned.dotted_name(target) for target in node.targets]
    setting = next((name for name in names if name.startswith(_PREFIXES)), "")
    if setting:
        yield hit("without effect", node, setting=setting)


# -- OC218: an old way of asking whether there is MPS ----------------------------------------------


@rule("OC218")
def find_deprecated_checks(node: ast.Attribute | ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``torch.has_mps`` and ``getattr(torch, "has_mps", False)``."""
    asked = isinstance(node, ast.Attribute) and scanned.dotted_name(node) == "torch.has_mps"
    match node:
        case ast.Call(
            func=ast.Name("getattr" | "hasattr"), args=[owner, ast.Constant("has_mps"), *_]
        ):
            asked = scanned.dotted_name(owner) == "torch"
    if asked:
        torch = torch_name(scanned)
        yield hit(
            "has_mps",
            node,
            fix=Fix((replace(node, f"{torch}.backends.mps.is_available()"),)) if torch else None,
        )


# -- OC226: the number of CUDA devices, used as a number -------------------------------------------

_MESSAGES = read_words("messages") | {"max", "bool", "str", "format"}


@rule("OC226")
def find_device_counts(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``torch.cuda.device_count()`` where it is not compared, printed or a condition."""
    if scanned.dotted_name(node.func) != "torch.cuda.device_count":
        return
    by_zero = False
    match scanned.program.parent(node):
        case (
            ast.Compare()
            | ast.If()
            | ast.IfExp()
            | ast.BoolOp()
            | ast.UnaryOp()
            | ast.FormattedValue()
        ):
            return
        case ast.Call(func=called) if last(called) in _MESSAGES:
            return
        case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=right):
            by_zero = right is node
    yield hit("divides by count" if by_zero else "count", node)
