"""OC210: float64 or complex128 asked of a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule, argument, chain, method, torch_alias

_DTYPES = {
    "torch.float64": "float64",
    "torch.double": "float64",
    "torch.DoubleTensor": "float64",
    "torch.complex128": "complex128",
    "torch.cdouble": "complex128",
}
_TEXTS = {"torch.DoubleTensor": "float64", "torch.FloatTensor": ""}
_METHODS = {"double": "float64", "cdouble": "complex128"}
#: These give a value on the CPU, and what follows them stays there.
_TO_CPU = {"cpu", "numpy"}
#: They make a tensor on the CPU where no device is given.
_MAKES = {
    "arange", "as_tensor", "empty", "eye", "from_numpy", "full", "linspace", "logspace", "ones",
    "rand", "randint", "randn", "randperm", "tensor", "zeros", "DoubleTensor",
}  # fmt: skip


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``.double()``, ``.to(torch.float64)``, ``dtype=torch.float64`` and the like."""
    if not isinstance(node, ast.Call):
        return
    dtype = asked_dtype(node, scanned)
    if not dtype or _on_cpu(node, scanned):
        return
    name = scanned.dotted(node.func)
    made = name.startswith("torch.") and name.rpartition(".")[2] in _MAKES
    if made and argument(node, None, "device") is None:
        yield Hit(
            node=node,
            severity="note",
            message=f"a {dtype} tensor is made here; MPS has no {dtype}, so it must stay on the "
            "CPU",
            hint="cast before it is moved: .to(device, torch.float32)",
        )
        return
    yield Hit(
        node=node,
        message=f"{dtype} is asked of a tensor; MPS has no {dtype}, and raises if it is there",
        hint="float32, or .cpu() before it; opcheck audit --precision says which parts need more",
    )


def asked_dtype(node: ast.Call, scanned: Scanned) -> str:
    """The dtype that a call asks for, where it is one of the two; else empty."""
    name, last = scanned.dotted(node.func), method(node)
    if name == "torch.DoubleTensor":
        return "float64"
    if last in _METHODS and not name and not node.args and torch_alias(scanned):
        return _METHODS[last]
    candidates = [argument(node, None, "dtype")]
    if last in {"to", "type"} and not name:
        candidates += node.args
    for candidate in candidates:
        if candidate is None:
            continue
        if (dtype := _DTYPES.get(_dtype_name(candidate, scanned))) is not None:
            return dtype
        text = scanned.mac.constant(candidate) if last == "type" else None
        if isinstance(text, str) and text in _TEXTS:
            return _TEXTS[text]
    return ""


def _dtype_name(node: ast.expr, scanned: Scanned) -> str:
    """The dotted name, through one assignment: ``dtype = torch.float64``."""
    if name := scanned.dotted(node):
        return name
    bound = scanned.program.bindings(node)
    return scanned.dotted(bound[0].value) if len(bound) == 1 else ""


def _on_cpu(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether the code itself says that the value is on the CPU, before or in the call."""
    for call in chain(node):
        if call is not node and method(call) in _TO_CPU:
            return True
        given = [argument(call, None, "device", "map_location")]
        if method(call) == "to":
            given += call.args
        if any(value is not None and _is_cpu(value, scanned) for value in given):
            return True
    return False


def _is_cpu(node: ast.expr, scanned: Scanned) -> bool:
    if isinstance(node, ast.Call) and scanned.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    return scanned.mac.constant(node) == "cpu"


RULE = ScanRule(
    id="OC210",
    severity="warning",
    nodes=(ast.Call,),
    names={ast.Call: frozenset({*_METHODS, "DoubleTensor", "to", "type", "dtype"})},
    check=check,
)
