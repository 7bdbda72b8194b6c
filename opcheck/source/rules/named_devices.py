"""Devices of CUDA that a program names: methods, texts, defaults and types of tensors."""

import ast
import re
from collections.abc import Iterator

from opcheck.common.versions import Version
from opcheck.source.call_tables import NOT_COMPILED, read_table
from opcheck.source.devices import (
    choose_device,
    cuda_name,
    device_name,
    read_device,
    torch_name,
    wrap_arguments,
    write_choice,
    write_mps_or,
)
from opcheck.source.edits import Edit, Fix, insert_line, replace, replace_method
from opcheck.source.handled import handles_mps
from opcheck.source.program import Function, Program
from opcheck.source.rule import Hit, Scanned, argument, hit, method, rule, torch_alias
from opcheck.source.words import is_cuda, last, leaves, quote, word

# -- OC201: .cuda() on a tensor or a module --------------------------------------------------------


@rule("OC201")
def find_cuda_methods(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls of a method ``cuda`` of anything that is not a module of another library."""
    if method(node) != "cuda":
        return
    owner = scanned.dotted_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if owner and not (scanned.project is not None and scanned.project.holds(owner)):
        return
    yield hit("cuda method", node, fix=_fix_move(node, scanned), prints=_prints(node, scanned))


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


def _fix_move(node: ast.Call, scanned: Scanned) -> Fix | None:
    """``.to(device)`` where the name is provably CUDA on a machine that has it; else, unsafe, with a choice.

    Without CUDA the method raises, so that only what happens with CUDA must stay the same.
    """
    first_gpu = [getattr(each, "value", None) for each in node.args] == [0]
    if any(keyword.arg not in {"device", "non_blocking"} for keyword in node.keywords):
        return None
    index = argument(node, 0, "device")
    around = scanned.program.parent(node)
    option = scanned.program.parent(around) if isinstance(around, ast.Lambda) else None
    if isinstance(option, ast.keyword) and option.arg == "map_location":
        return _fix_map_location(option.value, index, scanned)
    if index is not None and not first_gpu:
        return _fix_indexed_move(node, index, scanned)
    further = scanned.keywords(node, "non_blocking")
    certain = "" if first_gpu else cuda_name(node, scanned)
    if name := certain or device_name(node, scanned):
        return Fix((replace_method(node, "cuda", f"to({name}{further})"),), "safe" if certain else "unsafe")
    cuda = '"cuda:0"' if first_gpu else '"cuda"'
    return choose_device(cuda, scanned, lambda text: replace_method(node, "cuda", f"to({text}{further})"))


def _fix_map_location(node: ast.expr, index: ast.expr | None, scanned: Scanned) -> Fix | None:
    """``map_location=lambda storage, loc: storage.cuda()``: a device, because ``to()`` of a storage has keywords alone.

    torch/storage.py of the wheels: ``_StorageBase.to``.
    """
    if name := device_name(node, scanned):
        return Fix((replace(node, name),), "unsafe")
    return None if index else choose_device('"cuda"', scanned, lambda text: replace(node, text))


def _fix_indexed_move(node: ast.Call, index: ast.expr, scanned: Scanned) -> Fix | None:
    """``x.cuda(gpu)``: to the device in sight, or to MPS where there is MPS, and to that GPU everywhere else."""
    text = scanned.text(index)
    if not torch_name(scanned) or "\n" in text or len(node.args) > 1:
        return None
    is_device = isinstance(index, (ast.Name, ast.Attribute)) and "device" in last(index).lower()
    if not isinstance(index, (ast.Name, ast.Attribute, ast.Constant, ast.Subscript)):
        return None
    device = text if is_device else device_name(node, scanned)
    device = device or write_mps_or(text, scanned)
    further = scanned.keywords(node, "non_blocking")
    return Fix((replace_method(node, "cuda", f"to({device}{further})"),), "unsafe")


# -- OC202: the text "cuda" where a device is expected ---------------------------------------------

#: Where these take their device.
_FUNCTIONS = {name: (int(place[0]), place[2:]) for name, place in read_table("device_arguments").items()}
#: Libraries whose arguments of the same names are no devices of torch.
_OTHERS = {"cupy", "jax", "numba", "onnxruntime", "tensorflow", "warp", "argparse", "click"}
#: The keys of options that are a device.
_KEYS = {"device", "map_location", "device_type"}
#: Constructors, and functions that make or load a model; others may only compare the text.
_MAKES = re.compile(r"[A-Z](?!vent)\w*$|(load|create|build|make|init|prepare)(_|$)")
_LISTS = (ast.List, ast.Tuple, ast.Set)
_OWN_RULES = ("autocast", "GradScaler", "add_argument", "option")


@rule("OC202")
def find_cuda_devices(node: ast.Call | ast.Dict, scanned: Scanned) -> Iterator[Hit]:
    """Devices that may come to ``cuda``: given to torch or a constructor, by a keyword or key named after a device."""
    if isinstance(node, ast.Dict):
        yield from _entries(node, scanned)
        return
    name = scanned.dotted_name(node.func)
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
        yield hit(
            "cuda device",
            value.origin,
            use=node,
            fix=_fix_device(value.origin, scanned),
            severity="warning" if corrected else None,
            device=quote(value.constant),
        )
    elif _MAKES.match(called or last(node.func)):
        # ``Model(name, "cuda")``, ``load_model("cuda")``: a text that only a device has.
        yield from map(_text_hit, handed)
    if typed:
        yield hit("cuda type", node, fix=_cast(node, typed, scanned), typed=typed)


def _entries(node: ast.Dict, scanned: Scanned) -> Iterator[Hit]:
    """``{"device": "cuda"}``: options that somebody hands to a library."""
    for key, value in zip(node.keys, node.values, strict=True):
        is_device = isinstance(key, ast.Constant) and key.value in _KEYS
        # OC222 names a choice that is written here.
        named = scanned.mac.cuda(value) if is_device and not isinstance(value, ast.IfExp) else None
        if named is not None and isinstance(named.origin, ast.Constant):
            yield _text_hit(named.origin)


def _text_hit(node: ast.Constant) -> Hit:
    return hit("cuda text", node, text=quote(node.value))


def _fix_device(origin: ast.AST, scanned: Scanned) -> Fix | None:
    """The choice in place of the text.

    Not in a default, which is evaluated when the file is imported, and not with other devices: there the text means
    CUDA and nothing else.
    """
    if isinstance(origin, (ast.JoinedStr, ast.BinOp, ast.Call)):
        return _fix_indexed_device(origin, scanned)
    if not isinstance(origin, ast.Constant) or origin.value not in {"cuda", "cuda:0"}:
        return None
    if _in_default(origin, scanned) or _one_of_several(origin, scanned):
        return None
    if name := _device_in_scope(origin, scanned):
        return Fix((replace(origin, name),), "unsafe")
    choice = _with_brackets(write_choice(scanned.text(origin), scanned), origin, scanned)
    if not choice or scanned.text(origin)[:1] not in {"'", '"'}:
        return None
    return Fix((replace(origin, choice),), "unsafe", (replace(origin, "{helper}"),))


def _with_brackets(choice: str, origin: ast.expr, scanned: Scanned) -> str:
    is_whole = isinstance(scanned.program.parent(origin), (ast.Assign, ast.Call, ast.keyword))
    return choice if is_whole or not choice else f"({choice})"


def _device_in_scope(origin: ast.expr, scanned: Scanned) -> str:
    """The name of a device that the function has already, for an argument that takes a device."""
    parent = scanned.program.parent(origin)
    call = scanned.program.parent(parent) if isinstance(parent, ast.keyword) else parent
    takes = isinstance(call, ast.Call) and (
        (isinstance(parent, ast.keyword) and parent.arg in {"device", "map_location"})
        or (method(call) == "to" and not scanned.dotted_name(call.func))
    )
    return device_name(origin, scanned) if takes else ""


def _fix_indexed_device(origin: ast.expr, scanned: Scanned) -> Fix | None:
    """``f"cuda:{rank}"``: a device in sight, or MPS where there is MPS, and that GPU everywhere else."""
    text = scanned.text(origin)
    choice = _with_brackets(write_mps_or(text, scanned), origin, scanned)
    if not choice or "\n" in text or _in_default(origin, scanned):
        return None
    parent = scanned.program.parent(origin)
    call = scanned.program.parent(parent) if isinstance(parent, ast.keyword) else parent
    return wrap_arguments(Fix((replace(origin, _device_in_scope(origin, scanned) or choice),), "unsafe"), call, scanned)


#: The dtypes of the types of tensors; float64 is not among them, because MPS has none.
_DTYPES = read_table("tensor_dtypes")


def _cast(node: ast.Call, typed: str, scanned: Scanned) -> Fix | None:
    """``x.type(torch.cuda.LongTensor)`` is a move and a cast."""
    torch = torch_name(scanned)
    dtype = _DTYPES.get(typed.removeprefix("torch.cuda.").removesuffix("Tensor"))
    is_default = scanned.dotted_name(node.func) == "torch.set_default_tensor_type"
    if (method(node) != "type" and not is_default) or dtype is None or not torch or len(node.args) != 1:
        return None
    if is_default:
        # torch.set_default_device came with 2.0.
        name = device_name(node, scanned) or write_mps_or('"cuda"', scanned)
        indent = scanned.lines[node.lineno - 1].encode()[: node.col_offset].decode()
        text = f"{torch}.set_default_device({name})"
        if dtype != "float32":
            text = f"{torch}.set_default_dtype({torch}.{dtype})\n{indent}{text}"
        is_statement = isinstance(scanned.program.parent(node), ast.Expr) and not indent.strip()
        can_be = dtype == "float32" or (is_statement and dtype in {"float16", "bfloat16"})
        return Fix((replace(node, text),), "unsafe", since=Version(2, 0)) if can_be else None
    cast = f"{torch}.{dtype}"
    if name := device_name(node, scanned):
        return Fix((replace_method(node, "type", f"to({name}, {cast})"),), "unsafe")
    return choose_device('"cuda"', scanned, lambda device: replace_method(node, "type", f"to({device}, {cast})"))


def _one_of_several(origin: ast.expr, scanned: Scanned) -> bool:
    """Return whether the device is in a list with the CPU, itself or by its name.

    ``for d in [cpu, gpu]: if d == gpu and not torch.cuda.is_available(): skip()`` would skip both on a machine
    without a GPU, if ``gpu`` were a choice.
    """
    device: ast.AST = origin
    parent = scanned.program.parent(origin)
    if isinstance(parent, ast.Call) and scanned.dotted_name(parent.func) == "torch.device":
        device, parent = parent, scanned.program.parent(parent)
    if isinstance(parent, _LISTS):
        return _holds_cpu(parent, scanned)
    targets = parent.targets if isinstance(parent, ast.Assign) and parent.value is device else []
    uses = (use for target in targets for use in scanned.program.uses.get(last(target), ()))
    return any(
        isinstance(holder := scanned.program.parent(use), _LISTS) and _holds_cpu(holder, scanned) for use in uses
    )


def _holds_cpu(listed: ast.List | ast.Tuple | ast.Set, scanned: Scanned) -> bool:
    devices = (read_device(scanned.program.only_value(part) or part, scanned) for part in listed.elts)
    return any(device is not None and not is_cuda(device.text) for device in devices)


def _in_default(node: ast.AST, scanned: Scanned) -> bool:
    around = scanned.program.ancestors(node)
    return any(isinstance(place.parent, ast.arguments) for _, place in around)


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
    argument_given = argument(node, 0, "dtype", "t")
    text = argument_given and (scanned.dotted_name(argument_given) or scanned.mac.constant(argument_given))
    is_type = isinstance(text, str) and text.startswith("torch.cuda.") and text.endswith("Tensor")
    return str(text) if is_type else ""


def _is_elsewhere(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether it is only compared, itself or by its name, or is a default, which OC203 names."""
    parent = scanned.program.parent(node)
    if isinstance(parent, ast.Assign) and scanned.dotted_name(node.func) == "torch.device":
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
    names = (use for use in program.uses[name] if isinstance(use, ast.Name))
    reads = [use for use in names if isinstance(use.ctx, ast.Load)]
    return bool(reads) and all(isinstance(program.parent(use), ast.Compare) for use in reads)


def _is_corrected(node: ast.Call, name: str, scanned: Scanned) -> bool:
    """Return whether a device is only made here, and the program replaces it where there is no CUDA.

    ``device = torch.device("cuda")`` does not fail by itself; below is ``if not torch.cuda.is_available(): device =
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
    """Return whether a condition about devices, or a part of it, is true on a Mac."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else []
    return any("cuda" in text or "mps" in text for text in map(word, ast.walk(test))) and any(
        scanned.mac.truth(part) is True for part in (test, *parts)
    )


# -- OC203: the default of an option or a parameter is CUDA ----------------------------------------

_OPTIONS = {"add_argument", "option", "Option", "Argument", "field", "Field", "add_option"}
#: ``config.get("device", "cuda")``: the position of the name, and of the default.
_LOOKUPS = {"get": (0, 1), "pop": (0, 1), "setdefault": (0, 1), "getenv": (0, 1), "getattr": (1, 2)}

#: An annotation that takes None already.
_NULLABLE = re.compile(r"\b(?:None|Optional|Any|object)\b")
#: The first release of torch that no Python without ``str | None`` installs.
_WITHOUT_PYTHON_39 = Version(2, 9)


@rule("OC203")
def find_cuda_defaults(node: ast.Call | ast.arguments | ast.AnnAssign, scanned: Scanned) -> Iterator[Hit]:
    """Defaults of command lines, parameters and fields that are ``cuda``."""
    if isinstance(node, ast.Call):
        name = scanned.dotted_name(node.func).rpartition(".")[2] or method(node)
        if name in _OPTIONS:
            default = argument(node, None, "default")
            yield from _default_hits(default, "option", scanned, _write_default(default, scanned))
        yield from _looked_up(node, scanned)
        yield from _relying(node, scanned)
    elif isinstance(node, ast.arguments):
        parameters = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        values = [*node.defaults, *node.kw_defaults]
        for parameter, default in zip(parameters[len(parameters) - len(values) :], values, strict=True):
            yield from _default_hits(default, "parameter", scanned, _none(default, parameter, scanned))
    elif isinstance(node.target, ast.Name):
        in_class = isinstance(scanned.program.parent(node), ast.ClassDef)
        if in_class and "device" in node.target.id:
            yield from _default_hits(node.value, "field", scanned)


def _looked_up(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """A setting that is CUDA where it is not given: ``config.get("device", "cuda")``."""
    name, default = _LOOKUPS.get(last(node.func), (0, 0))
    asked = argument(node, name) if default else None
    if isinstance(asked, ast.Constant) and "device" in str(asked.value).lower():
        value = argument(node, default, "default")
        yield from _default_hits(value, "setting", scanned, _write_default(value, scanned))


def _relying(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """A call that leaves a parameter of another file's function at its default, which is CUDA."""
    name = scanned.dotted_name(node.func)
    if not name or scanned.project is None or scanned.path is None:
        return
    elsewhere = scanned.project.defaults(name, scanned.path)
    # A call that unpacks arguments may give it.
    is_unpacked = any(isinstance(part, ast.Starred) for part in node.args)
    argument_given = {word.arg for word in node.keywords}
    if elsewhere is None or is_unpacked or None in argument_given:
        return
    for default in elsewhere[1]:
        is_positional = default.position is not None and default.position < len(node.args)
        if default.parameter not in argument_given and not is_positional:
            yield hit(
                "cuda default elsewhere",
                node,
                function=name.rpartition(".")[2],
                parameter=default.parameter,
                device=quote(default.constant),
                file=elsewhere[0].name,
                line=default.line,
            )


def _write_default(default: ast.expr | None, scanned: Scanned) -> Fix | None:
    """The choice in place of the text, made when the option is."""
    is_text = isinstance(default, ast.Constant) and default.value in {"cuda", "cuda:0"}
    if default is None or not is_text:
        return None
    return choose_device(scanned.text(default), scanned, lambda text: replace(default, text))


def _none(default: ast.expr | None, parameter: ast.arg, scanned: Scanned) -> Fix | None:
    """``device=None``, and the choice in the body: a default is evaluated when the file is imported."""
    function, chosen = scanned.program.scope(parameter), _write_default(default, scanned)
    if chosen is None or default is None or not isinstance(function, Function):
        return None
    name, first = parameter.arg, function.body[0]
    if ast.get_docstring(function, clean=False) is not None and len(function.body) > 1:
        first = function.body[1]
    line = scanned.lines[first.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    if first.lineno <= default.lineno or len(indent) != first.col_offset:
        return None

    def edits(choice: str) -> tuple[Edit, ...]:
        body = f"{indent}if {name} is None:\n{indent}    {name} = {choice}"
        return replace(default, "None"), insert_line(first.lineno, body)

    fix = Fix(edits(chosen.edits[0].text), "unsafe", edits("{helper}"))
    return _allow_none(fix, parameter.annotation, scanned) if parameter.annotation else fix


def _allow_none(fix: Fix, annotation: ast.expr, scanned: Scanned) -> Fix:
    """Return a fix that also writes ``str | None`` as an annotation, which Python 3.9 does not read in every file."""
    text = scanned.text(annotation)
    if _NULLABLE.search(text):
        return fix
    is_text = isinstance(annotation, ast.Constant)
    edit = replace(annotation, repr(f"{ast.literal_eval(text)} | None") if is_text else f"{text} | None")
    fix = fix._replace(edits=(edit, *fix.edits), helper_edits=(edit, *fix.helper_edits))
    is_lazy = "__future__.annotations" in scanned.program.imports.values()
    if is_text or is_lazy or isinstance(annotation, ast.BinOp):
        return fix
    return fix._replace(since=_WITHOUT_PYTHON_39, needs="Python 3.10 as the oldest")


def _default_hits(default: ast.expr | None, what: str, scanned: Scanned, fix: Fix | None = None) -> Iterator[Hit]:
    """A default that is ``"cuda"`` or ``torch.device("cuda")``."""
    value = scanned.mac.cuda(default and scanned.unwrap_device(default))
    if value is not None:
        yield hit("cuda default", value.origin, fix=fix, what=what, device=quote(value.constant))


# -- OC225: the type of a tensor as a text, given to type() ----------------------------------------


@rule("OC225")
def find_tensor_types(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``x.type(y.type())``, also through a name."""
    if method(node) != "type" or len(node.args) != 1 or node.keywords:
        return
    argument_given = node.args[0]
    written = _is_type(argument_given)
    # The argument, and not the call: a chain of calls begins many lines above.
    origin: ast.AST = argument_given
    if not written:
        bindings = scanned.program.bindings(argument_given)
        values = [binding.value for binding in bindings]
        if not values or not all(value is not None and _is_type(value) for value in values):
            return
        origin = values[0] or node
    if scanned.dotted_name(node.func) or not torch_alias(scanned):
        return
    yield hit("type text", origin, use=node, fix=_fix_type(node, argument_given, scanned) if written else None)


def _is_type(node: ast.expr) -> bool:
    return method(node) == "type" and not (node.args or node.keywords)  # type: ignore[attr-defined]


def _fix_type(node: ast.Call, argument_given: ast.expr, scanned: Scanned) -> Fix | None:
    """``x.to(y)`` does the same on the CPU and on CUDA: the dtype and the device of y."""
    if not (isinstance(node.func, ast.Attribute) and isinstance(argument_given, ast.Call)):
        return None
    source = argument_given.func.value if isinstance(argument_given.func, ast.Attribute) else None
    if source is None or "\n" in scanned.text(source):
        return None
    return Fix((replace_method(node, "type", f"to({scanned.text(source)})"),))
