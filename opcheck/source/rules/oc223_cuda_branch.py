"""OC223: a branch that CUDA alone takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import about_cuda
from opcheck.source.handled import handles_mps
from opcheck.source.rule import Hit, Scanned, ScanRule, method
from opcheck.source.words import is_cuda, last

_HALF = {"torch.float16", "torch.half", "torch.bfloat16"}
_HALF_TEXTS = {"float16", "bfloat16", "fp16", "bf16", "half"}
#: What stands in a branch that a Mac does not need: seeds, settings of CUDA, messages.
_NOT_NEEDED = (
    "torch.cuda.manual_seed",
    "torch.backends.",
    "torch.cuda.set_device",
    "torch.cuda.reset",
)
_NOT_ABOUT = {"pin_memory", "pin_memory_device"}
_MESSAGES = {
    "print",
    "info",
    "warning",
    "debug",
    "warn",
    "print0",
    "log",
    "error",
    "append",
    "write",
}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Comparisons of a device with ``"cuda"``, ``is_cuda`` and ``is_bf16_supported()`` that decide something."""
    if isinstance(node, (ast.If, ast.IfExp)):
        yield from _half(node, scanned)
    elif _asks(node, scanned) and scanned.mac.truth(node) is not None and _decides(node, scanned):  # type: ignore[arg-type]  # an expression
        yield Hit(
            node=node,
            message="this holds for CUDA alone: a Mac takes the other way",
            hint='if MPS can take it, too: device.type in {"cuda", "mps"}, or device.type != "cpu"',
        )


def _asks(node: ast.AST, scanned: Scanned) -> bool:
    if handles_mps(node, scanned):
        return False
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        texts = [part.value for side in sides for part in _constants(side)]
        return len(node.ops) == 1 and any(map(is_cuda, texts)) and all(map(is_cuda, texts))
    if isinstance(node, ast.Call):
        begins = method(node) == "startswith" and len(node.args) == 1
        text = node.args[0].value if begins and isinstance(node.args[0], ast.Constant) else None
        return is_cuda(text) or scanned.dotted(node.func) == "torch.cuda.is_bf16_supported"
    return isinstance(node, ast.Attribute) and node.attr == "is_cuda"


def _constants(node: ast.expr) -> Iterator[ast.Constant]:
    if isinstance(node, ast.Constant):
        yield node
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        yield from (part for part in node.elts if isinstance(part, ast.Constant))
    elif isinstance(node, ast.Call) and node.args and last(node.func) == "device":
        yield from _constants(node.args[0])


def _decides(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether anything but messages and checks depends on a comparison."""
    for child, (parent, field, _, _) in scanned.program.ancestors(node):
        if isinstance(parent, ast.Assert):
            return False
        if isinstance(parent, ast.keyword) and parent.arg in _NOT_ABOUT:
            return False
        if isinstance(parent, ast.If) and field == "test":
            reported = scanned.once(("named by OC222", parent), _named_before, parent, scanned)
            return (
                not reported
                and not all(map(_is_check, parent.body))
                and _is_needed(parent, scanned)
            )
        if isinstance(parent, ast.IfExp) and child is parent.test:
            return not scanned.once(("named by OC222", parent), _named_before, parent, scanned)
        if isinstance(parent, (ast.JoinedStr, ast.ListComp, ast.GeneratorExp)):
            return False
        if isinstance(parent, ast.stmt):
            # A flag decides elsewhere; a statement of its own does not.
            return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.Return, ast.With, ast.While))
    return False


def _named_before(node: ast.If | ast.IfExp, scanned: Scanned) -> bool:
    # Imported here because each rule is a module of its own, and this one only asks what the other says.
    from opcheck.source.rules import oc222_device_choice

    return any(oc222_device_choice.check(node, scanned)) or any(_half(node, scanned))


def _is_check(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Raise, ast.Continue, ast.Break)):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, ast.Pass) or (
        isinstance(call, ast.Call) and last(call.func) in _MESSAGES
    )


def _is_needed(node: ast.If, scanned: Scanned) -> bool:
    calls = [
        scanned.dotted(statement.value.func)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ]
    return len(calls) < len(node.body) or not all(name.startswith(_NOT_NEEDED) for name in calls)


def _half(node: ast.If | ast.IfExp, scanned: Scanned) -> Iterator[Hit]:
    """A branch for CUDA that chooses half precision, where the other chooses another dtype."""
    if (
        handles_mps(node, scanned)
        or not about_cuda(node.test, scanned)
        or scanned.mac.truth(node.test) is None
    ):
        return
    first = node.body if isinstance(node.body, list) else [node.body]
    second = node.orelse if isinstance(node.orelse, list) else [node.orelse]
    if any(isinstance(part, (ast.If, ast.IfExp)) for part in second):
        return
    if any(_is_half(part, scanned) for part in (*first, *second)):
        yield Hit(
            node=node.test,
            severity="warning",
            message="half precision is chosen for CUDA alone: a Mac computes in the other dtype",
            hint="MPS has float16, and bfloat16 from macOS 14 on; choose by what the model needs",
        )


def _is_half(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether an expression, or what a statement assigns, is a dtype of 16 bits."""
    if isinstance(node, ast.Assign):
        node = node.value
    elif isinstance(node, ast.Expr) and method(node.value) in {"half", "bfloat16"}:
        return True
    if method(node) in {"half", "bfloat16"}:
        return True
    if isinstance(node, ast.Constant):
        return node.value in _HALF_TEXTS
    if isinstance(node, ast.Call) and method(node) == "to":
        return any(
            scanned.dotted(part) in _HALF
            for part in (*node.args, *(k.value for k in node.keywords))
        )
    return scanned.dotted(node) in _HALF


RULE = ScanRule(
    id="OC223",
    severity="note",
    nodes=(ast.Compare, ast.Attribute, ast.Call, ast.If, ast.IfExp),
    words=("cuda",),
    names={
        ast.Call: frozenset({"startswith", "is_bf16_supported"}),
        ast.Attribute: frozenset({"is_cuda"}),
    },
    check=check,
)
