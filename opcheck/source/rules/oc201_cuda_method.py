"""OC201: .cuda() on a tensor or a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.common.versions import Version
from opcheck.source.devices import cuda_name, device_name, torch_name, write_choice
from opcheck.source.edits import Fix, replace_method
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method
from opcheck.source.tables import NOT_COMPILED
from opcheck.source.words import last


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of a method ``cuda`` of anything that is not a module of another library."""
    if not isinstance(node, ast.Call) or method(node) != "cuda":
        return
    owner = scanned.dotted(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if owner and not (scanned.project is not None and scanned.project.holds(owner)):
        return
    yield Hit(
        node=node,
        fix=_fix(node, scanned),
        message=".cuda() moves to CUDA, which a Mac does not have",
        hint="take the device as a value: .to(device)",
        prints=_prints(node, scanned),
    )


def _prints(node: ast.Call, scanned: Scanned) -> str:
    """What a Mac prints: since 2.5 an index means the machine's accelerator, which is MPS.

    torch/csrc/utils/python_arg_parser.h (``toDevice``, ``deviceFromLong``) in the wheels of 2.4 and 2.5;
    torch/csrc/autograd/python_variable_methods.cpp (``THPVariable_cuda``) refuses a device that is not CUDA.
    """
    device = argument(node, 0, "device")
    index = scanned.mac.constant(device) if device is not None else None
    if type(index) is int and scanned.target.torch >= Version(2, 5):
        return "RuntimeError: Invalid device, must be cuda device"
    return NOT_COMPILED


def _fix(node: ast.Call, scanned: Scanned) -> Fix | None:
    """``.to(device)`` where the name is provably CUDA on a machine that has it; else, unsafe, with a choice.

    Without CUDA the method raises, so that only what happens with CUDA must stay the same.
    """
    first_gpu = (
        len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    )
    if any(keyword.arg not in {"device", "non_blocking"} for keyword in node.keywords):
        return None
    index = argument(node, 0, "device")
    if index is not None and not first_gpu:
        return _indexed(node, index, scanned)
    further = "".join(f", non_blocking={scanned.text(keyword.value)}" for keyword in node.keywords)
    device = "" if first_gpu else cuda_name(node, scanned)
    if device:
        return Fix((replace_method(node, "cuda", f"to({device}{further})"),))
    if name := device_name(node, scanned):
        return Fix((replace_method(node, "cuda", f"to({name}{further})"),), "unsafe")
    choice = write_choice('"cuda:0"' if first_gpu else '"cuda"', scanned)
    if not choice:
        return None
    inline, helper = (
        (replace_method(node, "cuda", f"to({text}{further})"),) for text in (choice, "{helper}")
    )
    # The helper returns no index, and the current GPU may be another than the first.
    return Fix(inline, "unsafe", () if first_gpu else helper)


def _indexed(node: ast.Call, index: ast.expr, scanned: Scanned) -> Fix | None:
    """``x.cuda(gpu)``: to the device in sight, or to MPS where there is MPS, and to that GPU everywhere else."""
    torch, text = torch_name(scanned), scanned.text(index)
    if not torch or "\n" in text or len(node.args) > 1:
        return None
    is_device = isinstance(index, (ast.Name, ast.Attribute)) and "device" in last(index).lower()
    if not isinstance(index, (ast.Name, ast.Attribute, ast.Constant, ast.Subscript)):
        return None
    device = text if is_device else device_name(node, scanned)
    device = device or f'"mps" if {torch}.backends.mps.is_available() else {text}'
    words = (word for word in node.keywords if word.arg == "non_blocking")
    further = "".join(f", non_blocking={scanned.text(word.value)}" for word in words)
    return Fix((replace_method(node, "cuda", f"to({device}{further})"),), "unsafe")


RULE = ScanRule(
    id="OC201",
    severity="error",
    fix="safe",
    words=("cuda",),
    nodes=(ast.Call,),
    names={ast.Call: frozenset({"cuda"})},
    check=check,
)
