"""What a program calls, reads and sets in torch.cuda: functions, settings, transfers and mixed precision."""

import ast
import re
from collections.abc import Iterator

from opcheck.common.versions import Version
from opcheck.source.call_tables import IDLE, INSTEAD, RAISES, find_error, read_table, read_words
from opcheck.source.devices import about_cuda, called_on_mps, torch_name, wrap_arguments, write_mps_or
from opcheck.source.edits import Applicability, Edit, Fix, insert_after, insert_before, merge_edits, replace
from opcheck.source.handled import handles_mps
from opcheck.source.rule import Hit, Scanned, argument, chain, hit, method, rule
from opcheck.source.words import last

# -- OC205: a function of torch.cuda that raises without CUDA --------------------------------------

_WITHOUT_RESULT = read_words("without_result")


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
        text = "raises, has equivalent" if name in INSTEAD else "raises"
        fix, prints = _fix_call(node, name, scanned), find_error(name, scanned.target)
        yield hit(text, node, fix=fix, prints=prints, name=name, instead=INSTEAD.get(name))


def _fix_call(node: ast.AST, name: str, scanned: Scanned) -> Fix | None:
    """The same of MPS: two branches for a statement, ``torch.mps.Event`` for an event.

    torch.mps.Event came with 2.1 (torch/mps/event.py of the wheels) and takes enable_timing alone.
    """
    if name in _WITHOUT_RESULT:
        return _guard(node, scanned, gate=name == "set_device")
    if name != "Event" or not isinstance(node, ast.Call):
        return called_on_mps(node, name, scanned)
    torch = torch_name(scanned)
    timed = not node.args and all(keyword.arg == "enable_timing" for keyword in node.keywords)
    if not torch or not timed:
        return None
    available = f"{torch}.backends.mps.is_available()"
    event = replace(node.func, f"({torch}.mps if {available} else {torch}.cuda).Event")
    return wrap_arguments(Fix((event,), since=Version(2, 1)), node, scanned)


def _guard(node: ast.AST, scanned: Scanned, *, gate: bool) -> Fix | None:
    """A call that returns nothing, behind a check for CUDA; unsafe: the program continues where it failed before."""
    statement, torch = scanned.program.parent(node), torch_name(scanned)
    line = scanned.lines[getattr(node, "lineno", 1) - 1]
    indent = line[: len(line) - len(line.lstrip())]
    is_first = getattr(statement, "col_offset", -1) == len(indent.encode()) and ";" not in line
    text = scanned.text(node)
    if not isinstance(statement, ast.Expr) or not torch or not is_first or "\n" in text:
        return None
    deeper = f"{indent}\t" if "\t" in indent else f"{indent}    "
    guarded = f"if {torch}.cuda.is_available():\n{deeper}{text}"
    return Fix((replace(statement, guarded),), "unsafe", gate=gate)


# -- OC206: a function of torch.cuda that does nothing without CUDA --------------------------------


@rule("OC206", calls={name.rpartition(".")[2] for name in IDLE})
def find_idle_calls(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls of the names that do nothing."""
    name = torch_cuda(node, scanned)
    if name in IDLE:
        text = "idle, has equivalent" if IDLE[name] else "idle"
        yield hit(text, node, fix=called_on_mps(node, name, scanned), name=name, instead=IDLE[name])


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
        case ast.Call(func=ast.Name("getattr" | "hasattr"), args=[owner, ast.Constant("has_mps"), *_]):
            asked = scanned.dotted_name(owner) == "torch"
    if asked:
        torch = torch_name(scanned)
        yield hit("has_mps", node, fix=Fix((replace(node, f"{torch}.backends.mps.is_available()"),)) if torch else None)


# -- OC226: the number of CUDA devices, used as a number -------------------------------------------

_MESSAGES = read_words("messages") | {"max", "bool", "str", "format"}


@rule("OC226")
def find_device_counts(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``torch.cuda.device_count()`` where it is not compared, printed or a condition."""
    if scanned.dotted_name(node.func) != "torch.cuda.device_count":
        return
    by_zero = False
    match scanned.program.parent(node):
        case ast.Compare() | ast.If() | ast.IfExp() | ast.BoolOp() | ast.UnaryOp() | ast.FormattedValue():
            return
        case ast.Call(func=called) if last(called) in _MESSAGES:
            return
        case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=right):
            by_zero = right is node
    yield hit("divides by count" if by_zero else "count", node)


# -- tensors on their way between the CPU, files, NumPy and the GPU --

# -- OC213: pinned memory --------------------------------------------------------------------------


@rule("OC213")
def find_pinned_memory(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``pin_memory=True`` in a call, and ``.pin_memory()``."""
    asked = argument(node, None, "pin_memory")
    if asked is not None and scanned.mac.constant(asked) is True:
        called = scanned.dotted_name(node.func).rpartition(".")[2] or method(node)
        called = called or getattr(node.func, "id", "")
        loader = "; a DataLoader skips it on a Mac, and warns" * called.endswith("DataLoader")
        yield hit("pinned batches", asked, fix=_fix_pinning(asked, scanned), loader=loader)
    elif method(node) == "pin_memory" and not node.args and not scanned.dotted_name(node.func):
        yield hit("pinned tensor", node)


def _fix_pinning(asked: ast.expr, scanned: Scanned) -> Fix | None:
    torch = torch_name(scanned)
    is_constant = isinstance(asked, ast.Constant) and torch
    return Fix((replace(asked, f"{torch}.cuda.is_available()"),)) if is_constant else None


# -- OC219: .numpy() on a tensor that is on MPS ----------------------------------------------------

_LEAVES = {"cpu", "numpy", "tolist", "item"}


@rule("OC219")
def find_numpy_of_mps(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``.numpy()`` where the same expression put the tensor on MPS."""
    if method(node) != "numpy" or scanned.dotted_name(node.func):
        return
    for call in chain(node.func):
        if method(call) in _LEAVES:
            return
        targets = [argument(call, None, "device")]
        if method(call) == "to":
            targets += call.args[:1]
        devices = [scanned.mac.constant(value) for value in targets if value is not None]
        if any(isinstance(device, str) for device in devices):
            if any(str(device).startswith("mps") for device in devices):
                yield hit("numpy", node)
            return


# -- OC227: torch.load without map_location --------------------------------------------------------


@rule("OC227")
def find_unmapped_loads(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls of ``torch.load`` that do not say where the tensors go."""
    if scanned.dotted_name(node.func) != "torch.load":
        return
    unpacks = any(word.arg is None for word in node.keywords)
    if argument(node, 1, "map_location") is not None or unpacks:
        return
    if not node.args or any(isinstance(part, ast.Starred) for part in node.args):
        return
    yield hit("loads from cuda", node, fix=_fix_load(node, scanned))


def _fix_load(node: ast.Call, scanned: Scanned) -> Fix | None:
    """To the CPU where there is no CUDA; with CUDA the tensors come to where they were saved, as before."""
    torch = torch_name(scanned)
    place = f'None if {torch}.cuda.is_available() else "cpu"'
    edit = insert_after(node.args[0], f", map_location={place}")
    return Fix((edit,), "unsafe") if torch else None


# -- mixed precision for CUDA only --

_AUTOCAST = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
_SCALER = {"torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler", "torch.GradScaler"}
#: They ask about autocast of CUDA, and decorators that set it.
_OF_CUDA = read_table("autocast_of_cuda")
#: The first release with kernels of GradScaler for MPS (op_lists/registrations, _amp_foreach_non_finite_check...).
_SCALES_SINCE = Version(2, 8)
#: The first release whose torch.autocast takes mps (torch/amp/autocast_mode.py of the wheels of 2.4 and 2.5).
_MPS_SINCE = Version(2, 5)
_DECORATORS = {"torch.amp.custom_fwd", "torch.amp.custom_bwd"}
#: The last parts of these names.
_NAMES = {name.rpartition(".")[2] for name in (*_AUTOCAST, *_SCALER, *_OF_CUDA)}
#: The parameters of torch.cuda.amp.autocast (torch/cuda/amp/autocast_mode.py) in their order.
_PARAMETERS = ("enabled", "dtype", "cache_enabled")


@rule("OC207", attributes={name.rpartition(".")[2] for name in _OF_CUDA})
def find_cuda_autocast(node: ast.Call | ast.Attribute | ast.Name, scanned: Scanned) -> Iterator[Hit]:
    """Autocast and GradScaler of CUDA, and functions about them."""
    if isinstance(node, (ast.Attribute, ast.Name)):
        instead = _OF_CUDA.get(scanned.dotted_name(node))
        if instead:
            yield hit("autocast of cuda", node, name=scanned.dotted_name(node), instead=instead)
    else:
        # ``autocast(device.type)`` for a release that takes no mps.
        is_before = scanned.target.torch < _MPS_SINCE and _name(node, scanned) in _AUTOCAST
        if is_before and _may_be_mps(node, scanned):
            yield hit("autocast not yet", node, torch=scanned.target.torch, since=_MPS_SINCE)
        yield from _find_calls(node, scanned)


def _find_calls(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    name = _name(node, scanned)
    if name in _DECORATORS and scanned.mac.cuda(argument(node, None, "device_type")):
        yield hit("autocast decorator", node, name=name)
    ending = name.rpartition(".")[2]
    if ending not in {"autocast", "GradScaler"} or not name.startswith("torch."):
        return
    enabled = argument(node, None, "enabled")
    if enabled is None and name.startswith("torch.cuda.amp.") and ending == "autocast":
        enabled = argument(node, 0)
    is_off = enabled is not None and scanned.mac.truth(enabled) is False
    if is_off and not isinstance(enabled, ast.Constant) and enabled is not None:
        yield from _on_for_cuda(node, enabled, ending, scanned)
        return
    if is_off and ending == "GradScaler":
        return
    if name.startswith("torch.cuda.amp."):
        what = f"torch.cuda.amp.{ending}"
    elif name in _AUTOCAST and scanned.mac.cuda(argument(node, 0, "device_type")):
        what = 'torch.autocast("cuda")'
    elif name in _SCALER and _scales_cuda(node, scanned):
        what = 'torch.amp.GradScaler("cuda")'
    else:
        return
    fix = _fix(node, name, scanned, is_off=is_off) if ending == "autocast" else _scaler_fix(node, name, scanned)
    yield hit("only cuda off" if is_off else "off without cuda", node, fix=fix, what=what, ending=ending)


def _may_be_mps(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether a call takes the type of the program's device, and is made on a Mac that computes on MPS."""
    device = argument(node, 0, "device_type")
    if isinstance(device, ast.Constant):
        return str(device.value).startswith("mps")
    enabled = argument(node, None, "enabled")
    is_type = isinstance(device, (ast.Attribute, ast.Name)) and "dev" in ast.unparse(device).lower()
    is_for_gpus = isinstance(enabled, ast.Compare) and any(
        isinstance(side, ast.Constant) and side.value == "cpu" for side in enabled.comparators
    )
    return is_type and (is_for_gpus or any("mps" in line for line in scanned.lines))


def _on_for_cuda(node: ast.Call, enabled: ast.expr, ending: str, scanned: Scanned) -> Iterator[Hit]:
    """``enabled=torch.cuda.is_available()``; OC223 names comparisons, and OC222 a flag behind a name."""
    asks = isinstance(enabled, (ast.Call, ast.BoolOp)) and about_cuda(enabled, scanned)
    compared = any(isinstance(part, ast.Compare) for part in ast.walk(enabled))
    if asks and not compared and not handles_mps(enabled, scanned):
        yield hit("enabled for cuda", node, ending=ending)


def _name(node: ast.Call, scanned: Scanned) -> str:
    """The dotted name of the called object, also through ``autocast = torch.cuda.amp.autocast``."""
    if name := scanned.dotted_name(node.func):
        return name
    aliases = scanned.once(("aliases of autocast",), _aliases, scanned)
    if last(node.func) == "partial" or last(node.func) not in aliases:
        return ""
    bindings = scanned.program.bindings(node.func)
    names = {
        name
        for binding in bindings
        for value in _sides(binding.value)
        if (name := scanned.dotted_name(value)).rpartition(".")[2] in _NAMES
    }
    return names.pop() if len(names) == 1 and len(bindings) == 1 else ""


def _sides(value: ast.expr | None) -> tuple[ast.expr | None, ...]:
    """The values that a name may get: ``autocast if args.amp else nullcontext``."""
    return (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)


def _aliases(scanned: Scanned) -> frozenset[str]:
    """The names that the file binds to something that this rule names."""
    return frozenset(
        name.removeprefix("self.")
        for name, bound in scanned.program.bound_values()
        for value in _sides(bound)
        if isinstance(value, (ast.Name, ast.Attribute)) and scanned.dotted_name(value).rpartition(".")[2] in _NAMES
    )


def _scales_cuda(node: ast.Call, scanned: Scanned) -> bool:
    device = argument(node, 0, "device")
    return device is None or scanned.mac.cuda(device) is not None


def _fix(node: ast.Call, name: str, scanned: Scanned, *, is_off: bool) -> Fix | None:
    """Autocast of MPS where there is MPS, and of CUDA everywhere else, as before.

    It is safe in a ``with``; a decorator runs when the file is imported. Where the file scales gradients as well,
    float16 on MPS without the scaler may lose them, and a person must look; a part in float32 inside of such a block
    changes with it.
    """
    torch = torch_name(scanned)
    if not torch or not scanned.dotted_name(node.func):
        return None
    device = write_mps_or('"cuda"', scanned)
    in_with = isinstance(scanned.program.parent(node), ast.withitem)
    scales = scanned.once(("scales",), _scales, scanned)
    alone = is_off and not scanned.once(("casts",), _casts, scanned)
    applicability: Applicability = "safe" if in_with and (alone or not scales) else "unsafe"
    since, needs = _MPS_SINCE, 'torch.autocast("mps")'
    scalers: tuple[Edit, ...] = ()
    # In bfloat16 no gradient is lost without a scaler.
    dtype = argument(node, None, "dtype")
    is_half = dtype is None or not scanned.dotted_name(dtype).endswith("bfloat16")
    if scales and is_half and not alone:
        since, needs = _SCALES_SINCE, "GradScaler on MPS"
        scalers = scanned.once(("edits of scalers",), _scaler_edits, scanned)
    device_type = argument(node, 0, "device_type")
    if name in _AUTOCAST:
        if not isinstance(device_type, ast.Constant) or device_type.value != "cuda":
            return None
        fix = Fix((replace(device_type, device), *scalers), applicability, since=since, needs=needs)
        return wrap_arguments(fix, node, scanned)
    is_starred = any(isinstance(part, ast.Starred) for part in node.args)
    edits = _rename_call(node, f"{torch}.autocast", device, scanned)
    if not edits or is_starred or len(node.args) > len(_PARAMETERS):
        return None
    named = zip(_PARAMETERS, node.args, strict=False)
    edits += [insert_before(device_type, f"{parameter}=") for parameter, device_type in named]
    fix = Fix((*merge_edits(edits), *scalers), applicability, since=since, needs=needs)
    return wrap_arguments(fix, node, scanned)


def _rename_call(node: ast.Call, name: str, device: str, scanned: Scanned) -> list[Edit]:
    """The edits that call another function with a device as its first argument; none for an unusual form."""
    line, column = node.func.end_lineno or node.lineno, node.func.end_col_offset or 0
    if not scanned.lines[line - 1].encode()[column:].startswith(b"("):
        return []
    device += ", " * bool(node.args or node.keywords)
    return [replace(node.func, name), Edit(line, column + 1, line, column + 1, device)]


def _scaler_fix(node: ast.Call, name: str, scanned: Scanned) -> Fix | None:
    """A scaler of MPS where there is MPS; its kernels came with 2.8 (op_lists/registrations)."""
    torch = torch_name(scanned)
    if not torch or not scanned.dotted_name(node.func):
        return None
    device = write_mps_or('"cuda"', scanned)
    device_type = argument(node, 0, "device") if name in _SCALER else None
    edits = _rename_call(node, f"{torch}.amp.GradScaler", device, scanned)
    if device_type is not None:
        edits = [replace(device_type, device)]
    if not edits:
        return None
    fix = Fix(tuple(edits), "unsafe", since=_SCALES_SINCE, needs="GradScaler on MPS")
    return wrap_arguments(fix, node, scanned)


def _scaler_edits(scanned: Scanned) -> tuple[Edit, ...]:
    """The edits of all scalers of CUDA in the file: float16 on MPS is to be scaled there."""
    edits: list[Edit] = []
    for node in (each for each in scanned.program.nodes if isinstance(each, ast.Call)):
        name = _name(node, scanned)
        is_scaler = name.rpartition(".")[2] == "GradScaler"
        if is_scaler and (name.startswith("torch.cuda.") or _scales_cuda(node, scanned)):
            fix = _scaler_fix(node, name, scanned)
            edits += fix.edits if fix else ()
    return tuple(edits)


def _scales(scanned: Scanned) -> bool:
    """Return whether the project scales gradients, also by a scaler of its own: ``loss_scaler``."""
    names = (*scanned.program.uses, *scanned.program.imports.values())
    project = scanned.project
    return any("scaler" in name.lower() for name in names) or (project is not None and project.has_word(b"GradScaler"))


def _casts(scanned: Scanned) -> bool:
    """Return whether the file turns autocast of CUDA on."""
    calls = (node for node in scanned.program.nodes if isinstance(node, ast.Call))
    of_cuda = (each for each in calls if _name(each, scanned).startswith("torch.cuda.amp.autocast"))
    return any(getattr(argument(each, 0, "enabled"), "value", None) is not False for each in of_cuda)
