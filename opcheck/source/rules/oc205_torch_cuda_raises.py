"""OC205: a function of torch.cuda that raises without CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.common.versions import Version
from opcheck.source.devices import called_on_mps, torch_name
from opcheck.source.edits import Fix, replace
from opcheck.source.rule import Hit, Scanned, ScanRule
from opcheck.source.tables import INSTEAD, RAISES, printed


def torch_cuda(node: ast.AST, scanned: Scanned) -> str:
    """What comes after ``torch.cuda.`` in a call; empty: another call."""
    name = scanned.dotted(node.func) if isinstance(node, ast.Call) else ""
    rest = name.removeprefix("torch.cuda.") if name.startswith("torch.cuda.") else ""
    # The same functions, by the modules that they are written in.
    for module in ("memory.", "random.", "streams.", "graphs."):
        rest = rest.removeprefix(module)
    return rest


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of what the table says raises."""
    name = torch_cuda(node, scanned)
    if name in RAISES:
        instead = INSTEAD.get(name, "")
        yield Hit(
            node=node,
            fix=_fix(node, name, scanned),
            message=f"torch.cuda.{name} fails without CUDA",
            hint=f"on MPS: {instead}"
            if instead
            else "call it only where torch.cuda.is_available()",
            prints=printed(name, scanned.target),
        )


def _fix(node: ast.AST, name: str, scanned: Scanned) -> Fix | None:
    """The same of MPS: two branches for a statement, ``torch.mps.Event`` for an event.

    torch.mps.Event came with 2.1 (torch/mps/event.py of the wheels) and takes enable_timing alone.
    """
    if name == "set_device":
        return _guarded(node, scanned)
    if name != "Event" or not isinstance(node, ast.Call):
        return called_on_mps(node, name, scanned)
    torch = torch_name(scanned)
    timed = not node.args and all(keyword.arg == "enable_timing" for keyword in node.keywords)
    if not torch or not timed:
        return None
    available = f"{torch}.backends.mps.is_available()"
    event = replace(node.func, f"({torch}.mps if {available} else {torch}.cuda).Event")
    return Fix((event,), since=Version(2, 1))


def _guarded(node: ast.AST, scanned: Scanned) -> Fix | None:
    """``set_device`` behind the question for CUDA; the program goes on where it failed, so that it is unsafe."""
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


RULE = ScanRule(
    id="OC205",
    severity="error",
    fix="safe",
    nodes=(ast.Call,),
    words=("cuda",),
    names={ast.Call: frozenset(name.rpartition(".")[2] for name in RAISES)},
    check=check,
)
