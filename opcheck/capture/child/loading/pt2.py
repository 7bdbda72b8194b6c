"""Reads programs that ``torch.export.save`` wrote, without running anything in them.

``torch.export.load`` unpickles what it does not know (``weights_only=False``), imports the modules
that a tree names, calls any function below ``torch`` that a node names, compiles the text of
guards, and writes names into the code that it generates.  So the archive is read here: tensors
alone are unpickled, and the graph is checked before torch makes a program of it.  Read in torch
2.8, 2.9.1, 2.13 and 2.15: torch/export/pt2_archive/_package.py, torch/_export/serde/serialize.py,
torch/export/_unlift.py.
"""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opcheck.capture.child.build import SMALL
from opcheck.capture.child.loading.model_archive import ModelArchive, make_damaged_error, make_refused_error
from opcheck.capture.naming import kind_of
from opcheck.capture.word_lists import read_words
from opcheck.common.errors import ModelLoadError, OpcheckError
from opcheck.common.python_source import parse_expression
from opcheck.common.text import shorten, type_and_text
from opcheck.tracing.torch_private import dispatch, export

#: torch/csrc/export/pt2_archive_constants.h
_FORMAT, _VERSION, _VERSIONS = "archive_format", "archive_version", ("0",)
_MODELS, _COMPILED = "models/", "data/aotinductor/"
_WEIGHTS, _CONSTANTS, _INPUTS = "data/weights/", "data/constants/", "data/sample_inputs/"

#: as torch.export.save wrote it up to 2.7
_OLD = "serialized_exported_program.json"

_OTHER_KIND = "name the model as file.py:attribute, or save it by torch.export.save()"


class UnsafeError(ValueError):
    """The graph of a program contains a value that no export writes."""


def read(file: str, *, real: bool) -> tuple[torch.export.ExportedProgram, bool]:
    """Return the program in a file, and whether its tensors were on an accelerator.

    Args:
        file: its path.
        real: read the values of all weights; large ones are on the meta device otherwise.

    Raises:
        ModelLoadError: the file is damaged, contains something else, or what would have to be run.
    """
    path = Path(file)
    try:
        _refuse_others(path)
        archive = ModelArchive(path, file)
        read_content = _old if _OLD in archive else _new
        document, state, constants, inputs = read_content(archive, real=real)
        # Make the graph one that torch can be given; whether its tensors were on an accelerator.
        module = document["graph_module"]
        # What only other tools read: of these, torch would look functions up, and load modules for the trees.
        document["guards_code"] = []
        module["metadata"] = {}
        module["module_call_graph"] = [entry for entry in module["module_call_graph"] if entry["fqn"] == ""][:1]
        kinds: set[str] = set()
        _check("", document, kinds)
        accelerated = bool(kinds - {"cpu", "meta"})
        # Tuples and dicts are taken as they are; bytes would be unpickled.
        arguments = None if inputs is None else tuple(inputs)
        return export.deserialize(document, state, constants, arguments), accelerated
    except OpcheckError:
        raise
    except UnsafeError as error:
        raise make_refused_error(file, str(error), "save it again by torch.export.save()") from error
    except Exception as error:
        raise make_damaged_error(file, type_and_text(error)) from error


def _refuse_others(path: Path) -> None:
    kind = kind_of(path)
    if kind not in ("a program of torch.export", ""):
        raise ModelLoadError(
            f"{path} is {kind}, not a program of torch.export", context=f"model {path}", hint=_OTHER_KIND
        )


Content = tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]


def _new(archive: ModelArchive, *, real: bool) -> Content:
    """Read the format of 2.8 and newer."""
    if archive.below(_COMPILED):
        raise make_refused_error(
            archive.name,
            "it contains compiled code of AOTInductor, which runs only on the machine of its compilation",
            "save the program itself by torch.export.save()",
        )
    if _FORMAT not in archive or archive.text(_FORMAT) != "pt2":
        raise make_damaged_error(archive.name, "it is no archive of torch.export")
    version = archive.text(_VERSION)
    if version not in _VERSIONS:
        raise make_damaged_error(archive.name, f"its format has the version {version!r}, known is 0")
    name = _only_model(archive)
    state = _tensors(archive, _WEIGHTS, name, real=real)
    constants = _tensors(archive, _CONSTANTS, name, real=real)
    sample = f"{_INPUTS}{name}.pt"
    inputs = archive.tensors(sample) if sample in archive and archive.size(sample) else None
    return archive.json(f"{_MODELS}{name}.json"), state, constants, inputs


def _old(archive: ModelArchive, *, real: bool) -> Content:
    """Read the format up to 2.7."""
    del real
    state = archive.tensors("serialized_state_dict.pt")
    constants = archive.tensors("serialized_constants.pt")
    sample = "serialized_example_inputs.pt"
    inputs = archive.tensors(sample) if archive.size(sample) else None
    return archive.json(_OLD), state, constants, inputs


def _only_model(archive: ModelArchive) -> str:
    """Return the program of that name that torch.export.load takes, or the only program."""
    names = [member.removeprefix(_MODELS) for member in archive.below(_MODELS)]
    names = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    if "model" in names or len(names) == 1:
        return "model" if "model" in names else names[0]
    held = ", ".join(names[:5]) or "no program"
    raise make_damaged_error(archive.name, f"it holds {held}, and one named model is needed")


def _tensors(archive: ModelArchive, folder: str, name: str, *, real: bool) -> dict[str, Any]:
    """Return the weights or the constants of a program."""
    pickled = f"{folder}{name}.pt"
    if pickled in archive:  # 2.8
        return dict(archive.tensors(pickled) if archive.size(pickled) else {})
    kind = folder.rstrip("/").rpartition("/")[2]
    config = archive.json(f"{folder}{name}_{kind}_config.json")["config"]
    stored: dict[str, torch.Tensor] = {}
    return {name: _tensor(archive, folder, entry, stored, real=real) for name, entry in config.items()}


def _tensor(
    archive: ModelArchive, folder: str, entry: dict[str, Any], stored: dict[str, torch.Tensor], *, real: bool
) -> torch.Tensor:
    member = f"{folder}{entry['path_name']}"
    if entry["use_pickle"]:
        if entry["tensor_meta"] is None:
            raise make_refused_error(
                archive.name, f"{member} contains an object that is not a tensor", "save it without it"
            )
        return archive.tensors(member)
    meta = entry["tensor_meta"]
    dtype = export.dtypes_by_number()[meta["dtype"]]
    sizes, strides = ([_number(size) for size in meta[key]] for key in ("sizes", "strides"))
    if member not in stored:
        stored[member] = _storage(archive, member, dtype, sizes, strides, real=real)
    shared = stored[member]
    flat = torch.empty(0, dtype=dtype, device=shared.device).set_(shared.untyped_storage())
    tensor = torch.as_strided(flat, sizes, strides, _number(meta["storage_offset"]))
    if entry["is_param"]:
        return torch.nn.Parameter(tensor, requires_grad=bool(meta["requires_grad"]))
    return tensor


def _storage(
    archive: ModelArchive, member: str, dtype: torch.dtype, sizes: list[int], strides: list[int], *, real: bool
) -> torch.Tensor:
    """Return the bytes that tensors share: those of the member, or none that are known."""
    nbytes = archive.size(member)
    if nbytes == 0:  # of a program that was exported with fake tensors
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        nbytes = 0 if 0 in sizes else (last + 1) * dtype.itemsize
        return torch.empty(nbytes, dtype=torch.uint8, device="meta")
    if not real and nbytes > SMALL * dtype.itemsize:
        return torch.empty(nbytes, dtype=torch.uint8, device="meta")
    return torch.frombuffer(bytearray(archive.read(member)), dtype=torch.uint8)


def _number(value: dict[str, Any]) -> int:
    number = value["as_int"]
    if type(number) is not int or number < 0:
        raise UnsafeError(f"{number!r} is no size")
    return number


#: What a node's metadata is kept for: the line and the module of a call.
_METADATA = ("stack_trace", "nn_module_stack")

#: Texts that are only shown, or that torch writes with their quotes.
_FREE = frozenset({"as_string", "as_strings", "torch_version", "class_fqn"})

#: Maps from names that the program chose.
_MAPS = read_words("pt2_maps")

#: The number of a symbol: torch counts up to it.
_LARGE = re.compile(r"\d{7}", re.ASCII)

_QUOTED = re.compile(r'[^"\\\x00-\x1f\x7f]{0,10000}')


def _check(key: str, value: Any, kinds: set[str]) -> Any:
    """Check one value of the document, in place; what it is replaced by."""
    if isinstance(value, dict):
        if key == "metadata":
            return {name: value[name] for name in _METADATA if type(value.get(name)) is str}
        if key in _RULES:
            _unsafe(f"in place of {key!r}", value)
        if "sizes" in value:
            _to_cpu(value, kinds)
        for name in value:
            _plain(name)
            if key == "range_constraints" and _LARGE.search(name):
                _unsafe("the symbol", name)
            value[name] = _check("" if key in _MAPS else name, value[name], kinds)
    elif isinstance(value, list):
        value[:] = [_check(key, item, kinds) for item in value]
    elif key in _RULES:
        return _RULES[key](value)
    elif isinstance(value, str) and key not in _FREE:
        _plain(value)
    return value


def _to_cpu(meta: dict[str, Any], kinds: set[str]) -> None:
    """Read on the CPU a tensor that was on an accelerator, for a move to mps."""
    device = meta.get("device")
    if isinstance(device, dict) and device.get("type") != "meta":
        kinds.add(str(device.get("type")))
        meta["device"] = {"type": "cpu", "index": None}


def _plain(text: str) -> None:
    """Check a name of a parameter or a module, which torch writes into code between quotes (torch/fx/graph.py)."""
    if not _QUOTED.fullmatch(text):
        _unsafe("the name", text)


def _identifier(value: Any) -> Any:
    """Check a name of a value, which torch writes into code as it is."""
    if value is not None and not (isinstance(value, str) and (value.isidentifier() or not value)):
        _unsafe("the name", value)
    return value


def _unsafe(what: str, value: Any) -> None:
    message = f"its graph contains {what} {shorten(repr(value), 80)}"
    raise UnsafeError(message)


# -- operators ---------------------------------------------------------------------------------------------------

_OPERATOR = re.compile(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", re.ASCII)
_PREDISPATCH = re.compile(r"torch\._functorch\.predispatch\.([a-z_]+)", re.ASCII)

#: Arguments that name files: ``aten::from_file`` makes a file.
_PATHS = frozenset({"file", "filename", "path", "uri", "url"})


def _operator(value: Any) -> Any:
    """Return a registered operator, or arithmetic of sizes; torch would call any function below ``torch``."""
    if not isinstance(value, str):
        _unsafe("the operator", value)
    match = _OPERATOR.fullmatch(value)
    if match:
        _check_registered(value, [name for name in match.groups() if name is not None])
    elif value not in _arithmetic() and not _is_predispatch(value):
        _unsafe("a call of", value)
    return value


def _check_registered(value: str, names: list[str]) -> None:
    target: Any = torch.ops
    for name in names:
        target = getattr(target, name, None)
    if target is None:
        raise ModelLoadError(
            f"the operator {'::'.join(names[:2])} is not registered here",
            context="the program's graph calls it",
            hint="name the model as file.py:attribute, in a file that imports what registers it",
        )
    if isinstance(target, dispatch.OpOverload):
        if any(argument.name in _PATHS for argument in dispatch.schema_of(target).arguments):
            _unsafe("a call of an operator on files,", value)
    elif not isinstance(target, dispatch.HigherOrderOperator):
        _unsafe("a call of", value)


def _arithmetic() -> set[str]:
    return {f"{each.__module__}.{each.__name__}" for each in export.functions_of_sizes()}


def _is_predispatch(value: str) -> bool:
    """Return whether it is a function that torch.vmap and torch.func.grad leave in a graph (2.9 and newer)."""
    match = _PREDISPATCH.fullmatch(value)
    return match is not None and export.is_predispatch_function(match[1])


# -- expressions of sizes ----------------------------------------------------------------------------------------

#: What sympy.srepr writes of sizes, and torch/_export/serde/serialize.py, ``sympy_functions``.
_FUNCTIONS = read_words("pt2_functions")
_POWERS = frozenset({"FloatPow", "LShift", "Pow", "PowByNatural"})
_LARGEST_POWER = 64
_WORDS_OF_SYMPY = frozenset({"oo", "int_oo", "true", "false"})
_SYMBOL = re.compile(r"[a-z]{1,4}\d{1,6}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,40}(?:\.\d{0,40})?(?:e[-+]?\d{1,3})?", re.ASCII)


def _expression(value: Any) -> Any:
    """Check the expression of a size, which sympy reads by ``eval``."""
    try:
        is_safe = isinstance(value, str) and _is_size(parse_expression(value[:10_000]))
    except (SyntaxError, RecursionError):
        is_safe = False
    if not is_safe:
        _unsafe("the expression", value)
    return value


def _is_size(part: ast.expr) -> bool:
    if isinstance(part, ast.Call):
        return _is_call(part)
    if isinstance(part, ast.UnaryOp):
        return isinstance(part.op, (ast.USub, ast.Not)) and _is_size(part.operand)
    if isinstance(part, ast.Name):
        return part.id in _WORDS_OF_SYMPY or bool(_SYMBOL.fullmatch(part.id))
    if not isinstance(part, ast.Constant):
        return False
    value = part.value
    return type(value) in (bool, float) or (type(value) is int and abs(value) < 1 << 64)


def _is_call(call: ast.Call) -> bool:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    settings = [keyword.value for keyword in call.keywords if keyword.arg]
    if name not in _FUNCTIONS or len(settings) < len(call.keywords):
        return False
    arguments = [*call.args, *settings]
    if name in _POWERS and any(_integer(argument) > _LARGEST_POWER for argument in arguments[1:]):
        return False
    text = {"Symbol": _SYMBOL, "Float": _NUMBER}.get(name)
    return all(
        bool(text.fullmatch(_text(argument))) if text and _text(argument) else _is_size(argument)
        for argument in arguments
    )


def _text(part: ast.expr) -> str:
    """Return the text that a part is; empty if it is none."""
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


def _integer(part: ast.expr) -> int:
    """Return the number in ``Integer(2)``."""
    if isinstance(part, ast.Call) and part.args:
        part = part.args[0]
    is_number = isinstance(part, ast.Constant) and type(part.value) is int
    return part.value if is_number else 0  # type: ignore[attr-defined]


# -- trees of arguments and results ------------------------------------------------------------------------------

_CONTAINERS = read_words("pt2_containers")


def _inputs(value: Any) -> Any:
    """Return the tree of the arguments: builtin containers, whose names become parameters of a function."""
    protocol, tree = _tree(value)
    _nodes(tree, _refuse_container)
    _, kwargs = tree["children_spec"]
    for name in json.loads(kwargs["context"]):
        _identifier(name)
    return json.dumps([protocol, tree])


def _outputs(value: Any) -> Any:
    """Return the tree of the results: a library's own class becomes a tuple, since nothing here looks at it."""
    protocol, tree = _tree(value)
    _nodes(tree, _make_tuple)
    return json.dumps([protocol, tree])


def _tree(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, str):
        _unsafe("the tree", value)
    protocol, tree = json.loads(value)
    return protocol, tree


def _nodes(node: dict[str, Any], instead: Callable[[dict[str, Any]], None]) -> None:
    kind = node["type"]
    if kind is not None and kind not in _CONTAINERS:
        instead(node)
    elif kind is not None and "__enum__" in json.dumps(_context(node)):
        # torch/utils/_pytree.py, ``enum_object_hook``: it imports the module that is named.
        _unsafe("an enumeration as a key,", node["context"])
    for child in node["children_spec"]:
        _nodes(child, instead)


def _context(node: dict[str, Any]) -> Any:
    context = node["context"]
    return json.loads(context) if isinstance(context, str) else context


def _refuse_container(node: dict[str, Any]) -> None:
    _unsafe("an argument of the class", node["type"])


def _make_tuple(node: dict[str, Any]) -> None:
    node["type"], node["context"] = "builtins.tuple", "null"


#: How a text of the document is checked, by its key; every other one may be written between quotes.
_RULES: dict[str, Callable[[Any], Any]] = {
    "target": _operator,
    "as_operator": _operator,
    "name": _identifier,
    "as_name": _identifier,
    "forward_arg_names": _identifier,
    "expr_str": _expression,
    "in_spec": _inputs,
    "out_spec": _outputs,
}
