"""OC202: the text "cuda" where a device is asked for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from opcheck.source.devices import device_name, flag_value, torch_name, write_choice, written
from opcheck.source.edits import Fix, replace, replace_method
from opcheck.source.handled import handles_mps
from opcheck.source.program import Program
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method
from opcheck.source.words import is_cuda, last, leaves, quoted

#: Where these take their device.
_FUNCTIONS: dict[str, tuple[int, str]] = {
    "torch.device": (0, "type"),
    "torch.load": (1, "map_location"),
    "torch.set_default_device": (0, "device"),
    "torch.Generator": (0, "device"),
}
#: Libraries whose arguments of the same names are no devices of torch.
_OTHERS = {"cupy", "jax", "numba", "onnxruntime", "tensorflow", "warp", "argparse", "click"}
#: The keys of options that are a device.
_KEYS = {"device", "map_location", "device_type"}
#: Constructors, and functions that make or load a model; others may only compare the text.
_MAKES = re.compile(r"[A-Z](?!vent)\w*$|(load|create|build|make|init|prepare)(_|$)")
_LISTS = (ast.List, ast.Tuple, ast.Set)
_OWN_RULES = ("autocast", "GradScaler", "add_argument", "option")


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Devices that may come to ``cuda``: given to torch or a constructor, by a keyword or a key that says device."""
    if isinstance(node, ast.Dict):
        yield from _entries(node, scanned)
    if not isinstance(node, ast.Call):
        return
    name = scanned.dotted(node.func)
    called = name.rpartition(".")[2] or method(node)
    device = _device(node, name)
    value = scanned.mac.cuda(device) if device is not None else None
    typed = _tensor_type(node, name, scanned)
    handed = [part for part in node.args if isinstance(part, ast.Constant) and is_cuda(part.value)]
    if value is None and not typed and not handed:
        return
    if name.partition(".")[0] in _OTHERS or called in _OWN_RULES or _is_elsewhere(node, scanned):
        return
    corrected = value is not None and _is_corrected(node, name, scanned)
    if value is not None and not (corrected and handles_mps(node, scanned)):
        yield Hit(
            node=value.origin,
            severity="warning" if corrected else None,
            fix=_fix(value.origin, scanned),
            use=node,
            message=f"the device is {quoted(value.constant)}, which a Mac does not have",
            hint="choose the device in one place: torch.accelerator.current_accelerator()",
        )
    elif _MAKES.match(called or last(node.func)):
        # ``Model(name, "cuda")``, ``load_model("cuda")``: a text that only a device has.
        yield from map(_text_hit, handed)
    if typed:
        yield Hit(
            node=node,
            message=f"{typed} is a type of CUDA tensors, which a Mac does not have",
            hint="give dtype= and device= instead of a tensor type",
            fix=_cast(node, typed, scanned),
            no_fix="the arguments of a constructor mean data or sizes: a person must tell them apart",
        )


def _entries(node: ast.Dict, scanned: Scanned) -> Iterator[Hit]:
    """``{"device": "cuda"}``: options that somebody hands to a library."""
    for key, value in zip(node.keys, node.values, strict=True):
        is_device = isinstance(key, ast.Constant) and key.value in _KEYS
        # OC222 names a choice that stands here itself.
        named = scanned.mac.cuda(value) if is_device and not isinstance(value, ast.IfExp) else None
        if named is not None and isinstance(named.origin, ast.Constant):
            yield _text_hit(named.origin)


def _text_hit(node: ast.Constant) -> Hit:
    return Hit(
        node=node,
        severity="warning",
        message=f"the text {quoted(node.value)} is given as a device, which a Mac does not have",
        hint="choose the device in one place: torch.accelerator.current_accelerator()",
    )


def _fix(origin: ast.AST, scanned: Scanned) -> Fix | None:
    """The choice in place of the text.

    Not in a default, which is evaluated when the file is imported, and not beside other devices: there the text means
    CUDA and nothing else.
    """
    if isinstance(origin, (ast.JoinedStr, ast.BinOp, ast.Call)):
        return _indexed(origin, scanned)
    plain = isinstance(origin, ast.Constant) and origin.value in {"cuda", "cuda:0"}
    if not plain or not isinstance(origin, ast.Constant) or _in_default(origin, scanned):
        return None
    if _one_of_several(origin, scanned):
        return None
    if origin.value == "cuda" and (name := _device_in_scope(origin, scanned)):
        return Fix((replace(origin, name),), "unsafe")
    choice = write_choice(scanned.text(origin), scanned)
    if not choice or scanned.text(origin)[:1] not in {"'", '"'}:
        return None
    if not isinstance(scanned.program.parent(origin), (ast.Assign, ast.Call, ast.keyword)):
        choice = f"({choice})"
    helper = (replace(origin, "{helper}"),) if origin.value == "cuda" else ()
    return Fix((replace(origin, choice),), "unsafe", helper)


def _device_in_scope(origin: ast.expr, scanned: Scanned) -> str:
    """The name of a device that the function has already, for an argument that takes a device."""
    parent = scanned.program.parent(origin)
    call = scanned.program.parent(parent) if isinstance(parent, ast.keyword) else parent
    takes = isinstance(call, ast.Call) and (
        (isinstance(parent, ast.keyword) and parent.arg in {"device", "map_location"})
        or (method(call) == "to" and not scanned.dotted(call.func))
    )
    return device_name(origin, scanned) if takes else ""


def _indexed(origin: ast.expr, scanned: Scanned) -> Fix | None:
    """``f"cuda:{rank}"``: a device in sight, or MPS where there is MPS, and that GPU everywhere else."""
    torch, text, parent = torch_name(scanned), scanned.text(origin), scanned.program.parent(origin)
    if not torch or "\n" in text or _in_default(origin, scanned):
        return None
    if name := _device_in_scope(origin, scanned):
        return Fix((replace(origin, name),), "unsafe")
    choice = f'"mps" if {torch}.backends.mps.is_available() else {text}'
    if not isinstance(parent, (ast.Assign, ast.Call, ast.keyword)):
        choice = f"({choice})"
    return Fix((replace(origin, choice),), "unsafe")


#: The dtypes of the types of tensors; float64 is not among them, because MPS has none.
_DTYPES = {
    "BFloat16": "bfloat16", "Bool": "bool", "Byte": "uint8", "Char": "int8", "Float": "float32", "Half": "float16",
    "Int": "int32", "Long": "int64", "Short": "int16",
}  # fmt: skip


def _cast(node: ast.Call, typed: str, scanned: Scanned) -> Fix | None:
    """``x.type(torch.cuda.LongTensor)`` is a move and a cast."""
    torch = torch_name(scanned)
    dtype = _DTYPES.get(typed.removeprefix("torch.cuda.").removesuffix("Tensor"))
    if method(node) != "type" or dtype is None or not torch or len(node.args) != 1:
        return None
    cast = f"{torch}.{dtype}"
    if name := device_name(node, scanned):
        return Fix((replace_method(node, "type", f"to({name}, {cast})"),), "unsafe")
    inline, helper = (
        (replace_method(node, "type", f"to({device}, {cast})"),)
        for device in (write_choice('"cuda"', scanned), "{helper}")
    )
    return Fix(inline, "unsafe", helper)


def _one_of_several(origin: ast.expr, scanned: Scanned) -> bool:
    """Return whether the device stands in a list with the CPU, itself or by its name.

    ``for d in [cpu, gpu]: if d == gpu and not torch.cuda.is_available(): skip()`` would skip both on a machine
    without a GPU, if ``gpu`` were a choice.
    """
    device: ast.AST = origin
    parent = scanned.program.parent(origin)
    if isinstance(parent, ast.Call) and scanned.dotted(parent.func) == "torch.device":
        device, parent = parent, scanned.program.parent(parent)
    if isinstance(parent, _LISTS):
        return _holds_cpu(parent, scanned)
    targets = parent.targets if isinstance(parent, ast.Assign) and parent.value is device else []
    uses = (use for target in targets for use in scanned.program.uses.get(last(target), ()))
    return any(
        isinstance(holder := scanned.program.parent(use), _LISTS) and _holds_cpu(holder, scanned)
        for use in uses
    )


def _holds_cpu(listed: ast.List | ast.Tuple | ast.Set, scanned: Scanned) -> bool:
    devices = (written(flag_value(part, scanned) or part, scanned) for part in listed.elts)
    return any(device is not None and not is_cuda(device.text) for device in devices)


def _in_default(node: ast.AST, scanned: Scanned) -> bool:
    return any(
        isinstance(place.parent, ast.arguments) for _, place in scanned.program.ancestors(node)
    )


def _device(node: ast.Call, name: str) -> ast.expr | None:
    if name.startswith("torch.cuda."):
        return None  # OC205 and OC206 say what becomes of the call
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
    """Return whether it is only compared, itself or by its name, or a default, of which OC203 speaks."""
    parent = scanned.program.parent(node)
    if isinstance(parent, ast.Assign) and scanned.dotted(node.func) == "torch.device":
        return all(
            isinstance(target, ast.Name)
            and scanned.once(("compared", target.id), _is_compared, target.id, scanned.program)
            for target in parent.targets
        )
    if isinstance(parent, ast.Attribute) and parent.attr == "type":  # torch.device("cuda").type
        parent = scanned.program.parent(parent)
    return isinstance(parent, (ast.Compare, ast.arguments))


def _is_compared(name: str, program: Program) -> bool:
    """Return whether the file reads a name in comparisons, and nowhere else."""
    reads = [
        use
        for use in program.uses[name]
        if isinstance(use, ast.Name) and isinstance(use.ctx, ast.Load)
    ]
    return bool(reads) and all(isinstance(program.parent(use), ast.Compare) for use in reads)


def _is_corrected(node: ast.Call, name: str, scanned: Scanned) -> bool:
    """Return whether a device is only made here, and the program replaces it where there is no CUDA.

    ``device = torch.device("cuda")`` does not fail by itself; below stands ``if not torch.cuda.is_available(): device =
    "cpu"`` or the like.
    """
    program = scanned.program
    parent, place = program.parent(node), program.place(node)
    if name != "torch.device" or place is None or not isinstance(parent, ast.Assign):
        return False
    lines = scanned.once(("corrected",), _corrections, scanned).get(place.scope, {})
    return max(lines.get(last(parent.targets[0]), 0), lines.get("return", 0)) > node.lineno


def _corrections(scanned: Scanned) -> dict[ast.AST, dict[str, int]]:
    """By function, the last line where a condition without CUDA binds a name; and ``return``, where it ends there."""
    lines: dict[ast.AST, dict[str, int]] = {}
    for node in scanned.program.nodes:
        if not isinstance(node, ast.If) or not _holds(node.test, scanned):
            continue
        of_scope = lines.setdefault(scanned.program.scope(node), {})
        if leaves(node.body):
            of_scope["return"] = node.lineno
        for statement in node.body:
            for target in statement.targets if isinstance(statement, ast.Assign) else ():
                of_scope[last(target)] = node.lineno
    return lines


def _holds(test: ast.expr, scanned: Scanned) -> bool:
    """Return whether a condition about devices holds on a Mac, or what it asks beside the device does."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
    return any("cuda" in text or "mps" in text for text in _texts(test)) and any(
        scanned.mac.truth(part) is True for part in (test, *parts)
    )


def _texts(test: ast.expr) -> Iterator[str]:
    for part in ast.walk(test):
        if isinstance(part, (ast.Name, ast.Attribute)):
            yield last(part)
        elif isinstance(part, ast.Constant):
            yield str(part.value)


RULE = ScanRule(
    id="OC202",
    severity="error",
    fix="unsafe",
    words=("cuda",),
    carried=True,
    nodes=(ast.Call, ast.Dict),
    check=check,
)
