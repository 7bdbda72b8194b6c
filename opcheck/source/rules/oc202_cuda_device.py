"""OC202: the text "cuda" where a device is asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import write_choice
from opcheck.source.edits import Fix, replace
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method
from opcheck.source.words import quoted

#: Where these take their device.
_FUNCTIONS: dict[str, tuple[int, str]] = {
    "torch.device": (0, "type"),
    "torch.load": (1, "map_location"),
    "torch.set_default_device": (0, "device"),
    "torch.Generator": (0, "device"),
}
#: Libraries whose arguments of the same names are no devices of torch.
_OTHERS = {"cupy", "jax", "numba", "onnxruntime", "tensorflow", "warp", "argparse", "click"}
_OWN_RULES = ("autocast", "GradScaler", "add_argument", "option")


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Devices that may come to ``cuda``, given to torch or by a keyword that says device."""
    if not isinstance(node, ast.Call):
        return
    name = scanned.dotted(node.func)
    last = name.rpartition(".")[2] or method(node)
    if name.partition(".")[0] in _OTHERS or last in _OWN_RULES or _is_elsewhere(node, scanned):
        return
    if scanned.program.function(node) == "cuda":
        return  # a method of this name is there to move to CUDA
    value = scanned.mac.cuda(_device(node, name))
    if value is not None:
        yield Hit(
            node=value.origin,
            fix=_fix(value.origin, scanned),
            use=node,
            message=f"the device is {quoted(value.constant)}, which a Mac does not have",
            hint="choose the device in one place: torch.accelerator.current_accelerator()",
        )
    typed = _tensor_type(node, name, scanned)
    if typed:
        yield Hit(
            node=node,
            message=f"{typed} is a type of CUDA tensors, which a Mac does not have",
            hint="give dtype= and device= instead of a tensor type",
        )


def _fix(origin: ast.AST, scanned: Scanned) -> Fix | None:
    """The choice in place of the text; not in a default, which is evaluated when the file is imported."""
    plain = isinstance(origin, ast.Constant) and origin.value in {"cuda", "cuda:0"}
    if not plain or not isinstance(origin, ast.Constant) or _in_default(origin, scanned):
        return None
    choice = write_choice(scanned.text(origin), scanned)
    if not choice or scanned.text(origin)[:1] not in {"'", '"'}:
        return None
    if not isinstance(scanned.program.parent(origin), (ast.Assign, ast.Call, ast.keyword)):
        choice = f"({choice})"
    helper = (replace(origin, "{helper}"),) if origin.value == "cuda" else ()
    return Fix((replace(origin, choice),), "unsafe", helper)


def _in_default(node: ast.AST, scanned: Scanned) -> bool:
    return any(
        isinstance(place.parent, ast.arguments) for _, place in scanned.program.ancestors(node)
    )


def _device(node: ast.Call, name: str) -> ast.expr | None:
    if name in _FUNCTIONS:
        return argument(node, *_FUNCTIONS[name])
    if not name and method(node) == "to":
        return argument(node, 0, "device")
    return argument(node, None, "device", "map_location", "accelerator", "device_map")


def _tensor_type(node: ast.Call, name: str, scanned: Scanned) -> str:
    """``torch.cuda.FloatTensor`` where it is called, or given to type() or as the default."""
    if name.startswith("torch.cuda.") and name.endswith(("Tensor", "Storage")):
        return name
    if method(node) != "type" and name != "torch.set_default_tensor_type":
        return ""
    given = argument(node, 0, "dtype", "t")
    if given is None:
        return ""
    text = scanned.dotted(given) or scanned.mac.constant(given)
    is_type = isinstance(text, str) and text.startswith("torch.cuda.") and text.endswith("Tensor")
    return str(text) if is_type else ""


def _is_elsewhere(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether it is only compared, or a default, of which OC203 speaks."""
    return isinstance(scanned.program.parent(node), (ast.Compare, ast.arguments))


RULE = ScanRule(
    id="OC202",
    severity="error",
    fix="unsafe",
    nodes=(ast.Call,),
    check=check,
)
