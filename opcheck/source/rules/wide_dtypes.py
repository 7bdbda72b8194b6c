"""Dtypes that MPS has not: float64, complex128, and on older targets complex numbers and float8."""

import ast
from collections.abc import Iterator

from opcheck.common.versions import Version
from opcheck.source.call_tables import read_table
from opcheck.source.numpy_dtypes import COMPLEX128, FLOAT64, TENSORS, Dtypes, may_be_device
from opcheck.source.rule import (
    IMPORTS,
    Hit,
    Scanned,
    argument,
    chain,
    hit,
    method,
    rule,
    torch_alias,
)
from opcheck.source.words import is_cuda

# -- OC210: float64 or complex128 of a tensor, or from an array of NumPy ----------------------------

_DTYPES = read_table("wide_dtypes")
_WIDE = {FLOAT64: "float64", COMPLEX128: "complex128"}
_TEXTS = {"torch.DoubleTensor": "float64", "torch.FloatTensor": ""}
_METHODS = {"double": "float64", "cdouble": "complex128"}
#: These give a value on the CPU, and what follows them stays there.
_TO_CPU = {"cpu", "numpy"}
#: They make a tensor on the CPU where no device is given.
_MAKES = {
    "arange", "as_tensor", "empty", "eye", "from_numpy", "full", "linspace", "logspace", "ones",
    "rand", "randint", "randn", "randperm", "tensor", "zeros", "DoubleTensor",
}  # fmt: skip
#: A call that makes a tensor of an array, or the function's import under another name.
_FROM_NUMPY = r"(?:from_numpy|as_tensor|asarray|tensor)(?:[\\\s]*\(|[\\\s]+as\b)"


@rule(
    "OC210",
    words=(
        "float64",
        r"double (?m)(?:\.[\\\s]*|\bimport\b.*\b|^\s*)double\b",
        "DoubleTensor",
        "complex128",
        "cdouble",
        rf"numpy torch {IMPORTS}numpy\b {_FROM_NUMPY}",
    ),
    calls={*_METHODS, "DoubleTensor", "to", "type", "dtype", "cuda", "device"},
)
def find_wide_dtypes(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.double()``, ``.to(torch.float64)``, ``dtype=torch.float64`` and the like."""
    dtype = asked_dtype(node, scanned)
    if not dtype:
        yield from _from_numpy(node, scanned)
        return
    if _on_cpu(node, scanned):
        return
    name = scanned.dotted_name(node.func)
    is_creation = name.startswith("torch.") and name.rpartition(".")[2] in _MAKES
    if is_creation and argument(node, None, "device") is None:
        yield hit("wide on cpu", node, dtype=dtype)
        return
    yield hit("wide", node, dtype=dtype)


def _from_numpy(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``torch.from_numpy(np.random.rand(3)).to("mps")``: the tensor keeps the dtype of the array."""
    name, called = scanned.dotted_name(node.func), method(node)
    if not scanned.once(("imports numpy",), _imports_numpy, scanned):
        return
    moved: ast.expr = node
    if called in {"to", "cuda"} and not name and isinstance(node.func, ast.Attribute):
        moved, device = node.func.value, argument(node, 0, "device")
        if len(node.args) > 1 or any(word.arg in {"dtype", None} for word in node.keywords):
            return
    elif name in TENSORS:
        device = argument(node, None, "device")
    else:
        return
    is_mps = _is_mps(device, scanned) if device is not None else called == "cuda" or None
    kind = scanned.once(("dtypes",), Dtypes, scanned).kind(moved) if is_mps is not None else None
    if kind is not None and kind.family == "torch" and kind.dtype in _WIDE:
        dtype = _WIDE[kind.dtype]
        yield hit(
            "wide of numpy",
            node,
            severity="error" if is_mps and called != "cuda" else None,
            dtype=dtype,
        )


def _imports_numpy(scanned: Scanned) -> bool:
    return any(f"{name}.".startswith("numpy.") for name in scanned.program.imports.values())


def _is_mps(device: ast.expr, scanned: Scanned) -> bool | None:
    """Return whether a device is MPS (True), or may be (False) by its name; None for another or an unclear value."""
    values = (device, scanned.program.only_value(device) or device)
    inner = [part for each in values if (part := scanned.unwrap_device(each)) is not each]
    text = scanned.mac.constant(inner[0] if inner else device)
    if isinstance(text, str):
        return text.startswith("mps") or (False if is_cuda(text) else None)
    is_named = not isinstance(device, (ast.Constant, ast.Call)) and may_be_device(device)
    return False if inner or is_named else None


def asked_dtype(node: ast.Call, scanned: Scanned) -> str:
    """The wide dtype that a call names; empty for another dtype."""
    name, last = scanned.dotted_name(node.func), method(node)
    if name == "torch.DoubleTensor":
        return "float64"
    if last in _METHODS and not name and not node.args and torch_alias(scanned):
        return _METHODS[last]
    keyword = argument(node, None, "dtype")
    candidates = [keyword] if keyword else []
    if last in {"to", "type"} and not name:
        candidates += node.args
    for candidate in candidates:
        # Also through one assignment: ``dtype = torch.float64``.
        named = scanned.dotted_name(candidate) or scanned.dotted_name(
            scanned.program.only_value(candidate)
        )
        if (dtype := _DTYPES.get(named)) is not None:
            return dtype
        text = scanned.mac.constant(candidate) if last == "type" else None
        if isinstance(text, str) and text in _TEXTS:
            return _TEXTS[text]
    return ""


def _on_cpu(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether the code itself puts the value on the CPU, before or in the call."""
    for call in chain(node):
        if call is not node and method(call) in _TO_CPU:
            return True
        device = argument(call, None, "device", "map_location")
        places = [*([device] if device else []), *(call.args if method(call) == "to" else [])]
        if any(scanned.mac.constant(scanned.unwrap_device(each)) == "cpu" for each in places):
            return True
    return False


# -- OC211: float64 as the default dtype of all tensors --------------------------------------------

_SETS = {"torch.set_default_dtype", "torch.set_default_tensor_type"}
_DOUBLE = {"torch.float64", "torch.double", "torch.DoubleTensor"}


@rule("OC211", calls={name.rpartition(".")[2] for name in _SETS})
def find_wide_defaults(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls that make float64 the default."""
    if scanned.dotted_name(node.func) not in _SETS:
        return
    dtype = argument(node, 0, "d", "t")
    if dtype and (scanned.dotted_name(dtype) or scanned.mac.constant(dtype)) in _DOUBLE:
        yield hit("wide default", node)


# -- OC212: complex numbers, for a Mac whose torch or macOS has none -------------------------------

_TORCH, _MACOS = Version(2, 3), Version(14)
_COMPLEX = {"torch.complex64", "torch.cfloat"}


def _with_torch(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether the literal is in one expression with a call of torch."""
    top = node
    for _, place in scanned.program.ancestors(node):
        if not isinstance(place.parent, ast.expr):
            break
        top = place.parent
    return scanned.once(("calls torch", top), _calls_torch, top, scanned)


def _calls_torch(node: ast.AST, scanned: Scanned) -> bool:
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(scanned.dotted_name(call.func).startswith("torch.") for call in calls)


@rule("OC212", applies=lambda target: target.torch < _TORCH or target.macos < _MACOS)
def find_complex_numbers(node: ast.Call | ast.Constant, scanned: Scanned) -> Iterator[Hit]:
    """Imaginary literals in calls of torch, and dtype=torch.complex64."""
    if isinstance(node, ast.Call):
        is_complex = scanned.dotted_name(argument(node, None, "dtype")) in _COMPLEX
    else:
        is_complex = isinstance(node.value, complex) and _with_torch(node, scanned)
    if is_complex:
        yield hit("complex", node, torch=_TORCH, macos=_MACOS.major)


# -- OC230: float8, which older kernels do not cast ------------------------------------------------

#: The release whose kernels cast float8_e4m3fn; none casts another kind of float8.
_CASTS = Version(2, 15)
_FLOAT8 = "torch.float8_"
_CAST_KIND = "torch.float8_e4m3fn"


@rule("OC230")
def find_float8(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.to(torch.float8_e4m3fn)``, ``dtype=torch.float8_e5m2``, ``storage_dtype=torch.float8_e4m3fn``."""
    named = [*node.args, *(word.value for word in node.keywords if word.arg)]
    dtypes = [
        scanned.dotted_name(each) or scanned.dotted_name(scanned.program.only_value(each))
        for each in named
    ]
    kind = next((each for each in dtypes if each.startswith(_FLOAT8)), "")
    can_cast = kind == _CAST_KIND and scanned.target.torch >= _CASTS
    if not kind or can_cast or _on_cpu(node, scanned):
        return
    dtype = kind.removeprefix("torch.")
    since = f"; torch {_CASTS} casts it" if kind == _CAST_KIND else ""
    yield hit("float8", node, dtype=dtype, since=since)
