"""Several processes and several GPUs: NCCL, DataParallel, and processes that spawn does not start."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from opcheck.source.call_tables import read_words
from opcheck.source.program import Function, walk
from opcheck.source.rule import Hit, Scanned, argument, hit, method, rule, torch_alias
from opcheck.source.words import last

# -- OC208: processes that talk through NCCL -------------------------------------------------------

_MAKES_GROUPS = {"init_process_group", "new_group", "init_device_mesh", "init_distributed"}
#: Of Lightning; the accelerators that no Mac takes for MPS, and the strategies of several processes on GPUs.
_TRAINERS, _NOT_GPU = {"Trainer", "Fabric"}, {"cpu", "cuda", "tpu", "hpu"}
_FAMILIES = ("ddp", "fsdp", "deepspeed")
_NO_DDP = (
    "ValueError: You set `strategy={}` but strategies from the DDP family are not supported on the MPS accelerator."
)
_OPTIONS = {"add_argument", "option", "Option", "add_option"}


@rule("OC208", calls={*_MAKES_GROUPS, *_OPTIONS, "process_group_backend", *_TRAINERS})
def find_nccl(node: ast.Call | ast.arguments, scanned: Scanned) -> Iterator[Hit]:
    """Groups of processes and options whose backend is ``nccl``."""
    if isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            yield from _nccl_hits(default, scanned)
        return
    name = scanned.dotted_name(node.func).rpartition(".")[2] or last(node.func)
    if name in _TRAINERS:
        yield from _find_parallel(node, scanned)
    elif name in _MAKES_GROUPS:
        position = 0 if name == "init_process_group" else None
        yield from _nccl_hits(argument(node, position, "backend", "dist_backend"), scanned, node)
    elif (backend := argument(node, None, "process_group_backend")) is not None:
        yield from _nccl_hits(backend, scanned, node)
    elif name in _OPTIONS:
        yield from _nccl_hits(argument(node, None, "default"), scanned)


def _find_parallel(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``Trainer(devices=2, strategy="ddp")``; ``accelerator="gpu"`` chooses MPS, and is right.

    lightning 2: fabric/connector.py raises ValueError for strategies of the DDP family on MPS, and
    fabric/utilities/device_parser.py MisconfigurationException for more devices than there are.
    """
    arguments = {key: argument(node, None, key) for key in ("accelerator", "strategy", "devices")}
    values = {key: value and scanned.mac.constant(value) for key, value in arguments.items()}
    if "lightning" not in scanned.dotted_name(node.func) or values["accelerator"] in _NOT_GPU:
        return
    strategy, devices, listed = values["strategy"], values["devices"], arguments["devices"]
    is_count = isinstance(devices, int) and devices > 1
    if isinstance(strategy, str) and strategy.startswith(_FAMILIES):
        is_ddp = strategy.startswith("ddp")
        yield hit("no strategy", node, prints=_NO_DDP.format(strategy) * is_ddp, strategy=strategy)
    elif is_count or (isinstance(listed, (ast.List, ast.Tuple)) and len(listed.elts) > 1):
        yield hit("several devices", node)


def _nccl_hits(node: ast.expr | None, scanned: Scanned, use: ast.AST | None = None) -> Iterator[Hit]:
    """NCCL as an argument of a call, or as a default."""
    for value in scanned.mac.values(node) if node is not None else ():
        if isinstance(value.constant, str) and value.constant.lower() == "nccl":
            yield hit("nccl" if use else "nccl default", value.origin, use=use)
            return


# -- OC228: nn.DataParallel, which moves no inputs on a Mac ----------------------------------------

_NAMES = {f"torch.nn.{module}DataParallel" for module in ("", "parallel.", "parallel.data_parallel.")}
_MOVES = {"cuda", "to"}


@rule("OC228")
def find_data_parallel(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Modules that are wrapped; a warning where the file moves nothing but the module itself."""
    if scanned.dotted_name(node.func) not in _NAMES:
        return
    yield hit("data parallel", node, severity=None if _moves_something_else(node, scanned) else "warning")


def _moves_something_else(call: ast.Call, scanned: Scanned) -> bool:
    """Return whether a call in the file moves something that is not the wrapped module."""
    parent = scanned.program.parent(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    modules = {ast.dump(part) for part in (*call.args[:1], *targets)}
    # A target is stored where a receiver is loaded.
    modules = {text.replace("Store()", "Load()") for text in modules}
    return any(
        method(each) in _MOVES
        and isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and not any(part is call or ast.dump(part) in modules for part in walk(each.func.value))
        for each in scanned.program.nodes
    )


# -- OC229: processes that start on Linux by fork, and that spawn, the default of macOS, does not start

_STARTS = read_words("starts_processes")
#: Calls that go through a loader which they are given, by the name that is called.
_ITERATING = read_words("iterating")
#: Arguments of a dataset that it keeps, and that go to the workers with it.
_COMPOSES = {"Compose", "Lambda", "Sequential"}
_KEPT = frozenset({"loader", "is_valid_file", "target_transform", "transform", "transforms"})
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Iterating = ast.Call | ast.For | ast.AsyncFor | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
#: Position of num_workers (torch/utils/data/dataloader.py).
_WORKERS = 5
_MOST_FUNCTIONS = 200


class _AtImport(NamedTuple):
    """What runs when the file is imported."""

    nodes: frozenset[ast.AST]
    #: parameters of functions, with the expressions that calls give for them
    arguments: dict[tuple[ast.AST, str], list[ast.expr]]


@rule("OC229")
def find_spawned_processes(node: _Iterating, scanned: Scanned) -> Iterator[Hit]:
    """Loops over loaders with workers and processes without a main guard, and what pickle cannot send to them."""
    if not torch_alias(scanned) or scanned.once(("forks",), _forks, scanned):
        return
    if isinstance(node, ast.Call):
        name = scanned.dotted_name(node.func)
        if _has_workers(node, scanned):
            yield from _not_sent(node, scanned, "collate_fn", "worker_init_fn")
            yield from _dataset_not_sent(node, scanned)
        elif name in _STARTS:
            yield from _not_sent(node, scanned, "target", "initializer")
            if _is_at_import(node, scanned):
                yield hit("no guard", node, what="a process is started")
    source = _find_iterable(node)
    if source is not None and _is_at_import(node, scanned) and _is_loader(source, scanned, 0):
        yield hit("no guard", source, what="a DataLoader starts its workers")


# -- what runs at import ---------------------------------------------------------------------------


def _is_at_import(node: ast.AST, scanned: Scanned) -> bool:
    # A notebook is no file that a process could import.
    is_notebook = scanned.path is not None and scanned.path.suffix == ".ipynb"
    return not is_notebook and node in scanned.once(("at import",), _at_import, scanned).nodes


def _at_import(scanned: Scanned) -> _AtImport:
    """Follow the statements at the top level, and the functions of the file that they call."""
    nodes: set[ast.AST] = set()
    arguments: dict[tuple[ast.AST, str], list[ast.expr]] = {}
    waiting: list[ast.AST] = list(scanned.program.tree.body)
    functions: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and any(last(part) == "__name__" for part in walk(node.test)):
            waiting += node.orelse
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        nodes.add(node)
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call) and (function := _function(node, scanned)) is not None:
            parameters = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
            pairs = [*zip(parameters, node.args, strict=False)]
            for name, value in (*pairs, *((word.arg or "", word.value) for word in node.keywords)):
                arguments.setdefault((function, name), []).append(value)
            if function not in functions and len(functions) < _MOST_FUNCTIONS:
                functions.add(function)
                waiting += function.body
    return _AtImport(frozenset(nodes), arguments)


def _function(call: ast.Call, scanned: Scanned) -> Function | None:
    """Return the function of this file that a call calls."""
    bound = scanned.program.only_binding(call.func) if isinstance(call.func, ast.Name) else None
    node = bound.node if bound else None
    return node if isinstance(node, Function) and not node.decorator_list else None


# -- loaders ---------------------------------------------------------------------------------------


def _find_iterable(node: ast.AST) -> ast.expr | None:
    """Return what a node goes through."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return node.iter
    if isinstance(node, _COMPREHENSIONS):
        return node.generators[0].iter
    if isinstance(node, ast.Call) and node.args:
        name = last(node.func)
        if name in _ITERATING:
            return node.args[1] if name in {"fit", "map"} and len(node.args) > 1 else node.args[0]
    return None


def _is_loader(node: ast.expr, scanned: Scanned, depth: int) -> bool:
    """Return whether an expression is or contains a DataLoader with workers."""
    if depth > _WORKERS:
        return False
    if isinstance(node, ast.Call):
        if _has_workers(node, scanned):
            return True
        function = _function(node, scanned)
        return function is not None and any(
            isinstance(each, ast.Return) and each.value and _is_loader(each.value, scanned, depth + 1)
            for each in walk(function)
        )
    if isinstance(node, ast.Tuple):
        return any(_is_loader(part, scanned, depth + 1) for part in node.elts)
    if not isinstance(node, ast.Name):
        return False
    arguments = scanned.once(("at import",), _at_import, scanned).arguments
    values: list[ast.expr | None] = []
    for binding in scanned.program.bindings(node):
        if isinstance(binding.node, ast.arg):
            values += arguments.get((scanned.program.scope(node), node.id), [])
        else:
            # The names of a tuple get parts of the value.
            unpacked = binding.node.value if isinstance(binding.node, ast.Assign) else None
            values.append(binding.value or unpacked)
    return bool(values) and all(value is not None and _is_loader(value, scanned, depth + 1) for value in values)


def _has_workers(call: ast.Call, scanned: Scanned) -> bool:
    """Return whether a call makes a DataLoader with workers that start as the system starts processes."""
    if not (scanned.dotted_name(call.func).endswith("DataLoader")):
        return False
    if argument(call, None, "multiprocessing_context") is not None:
        return False
    workers = argument(call, _WORKERS, "num_workers")
    if workers is not None:
        return _is_positive(workers, scanned)
    return any(_gives_workers(each.value, scanned) for each in call.keywords if each.arg is None)


def _gives_workers(node: ast.expr, scanned: Scanned) -> bool:
    """Return whether ``**name`` may give workers: a dict that is bound to the name, or that updates it."""
    bound = scanned.program.bindings(node) if isinstance(node, ast.Name) else []
    dicts: list[ast.AST] = [node, *(each.value for each in bound if each.value is not None)]
    if isinstance(node, ast.Name):
        for use in scanned.program.uses.get(node.id, []):
            update = scanned.program.parent(use)
            call = scanned.program.parent(update) if isinstance(update, ast.Attribute) else None
            if isinstance(call, ast.Call) and method(call) == "update":
                dicts += call.args[:1]
    dicts += [part for each in dicts if isinstance(each, ast.IfExp) for part in (each.body, each.orelse)]
    return any(
        isinstance(key, ast.Constant) and key.value == "num_workers" and _is_positive(value, scanned)
        for each in dicts
        if isinstance(each, ast.Dict)
        for key, value in zip(each.keys, each.values, strict=True)
    )


def _is_positive(node: ast.expr, scanned: Scanned) -> bool:
    """Return whether a number of workers is positive; of an argument of the program its default counts."""
    if isinstance(node, ast.Call) and last(node.func) == "int" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute):
        default = scanned.once(("arguments",), _arguments, scanned).get(node.attr)
        node = node if default is None else default
    number = scanned.mac.constant(node)
    return isinstance(number, int) and number > 0


def _arguments(scanned: Scanned) -> dict[str, ast.expr]:
    """Return the defaults of the program's arguments, by name."""
    defaults: dict[str, ast.expr] = {}
    for node in scanned.program.nodes:
        if isinstance(node, ast.Call) and method(node) == "add_argument":
            default = argument(node, None, "default")
            for name in node.args:
                if default is not None and isinstance(name, ast.Constant):
                    defaults[str(name.value).lstrip("-").replace("-", "_")] = default
    return defaults


def _forks(scanned: Scanned) -> bool:
    """Return whether the file chooses fork."""
    return any(
        isinstance(node, ast.Call)
        and last(node.func) in {"set_start_method", "get_context"}
        and any(isinstance(arg, ast.Constant) and arg.value == "fork" for arg in node.args)
        for node in scanned.program.nodes
    )


# -- what pickle cannot send -----------------------------------------------------------------------


def _not_sent(call: ast.Call, scanned: Scanned, *keywords: str) -> Iterator[Hit]:
    for name in keywords:
        value = argument(call, None, name)
        if value is not None and (what := _local(value, scanned)):
            yield hit("not sent", value, what=f"{name}={what}")


def _dataset_not_sent(call: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    dataset = argument(call, 0, "dataset")
    for _ in range(_WORKERS):  # a name of a name
        if not isinstance(dataset, ast.Name):
            break
        dataset = scanned.program.only_value(dataset)
    if not isinstance(dataset, ast.Call):
        return
    if what := _local(dataset.func, scanned):
        yield hit("not sent", dataset, what=f"the dataset's class: {what}")
    for keyword in dataset.keywords:
        if keyword.arg in _KEPT and (part := _lambda_in(keyword.value, scanned)) is not None:
            yield hit("not sent", part, what=f"{keyword.arg}={_local(part, scanned)} of the dataset")


def _lambda_in(node: ast.expr, scanned: Scanned) -> ast.expr | None:
    """Return the lambda or local function of a transform, also inside of Compose([Lambda(...)])."""
    if _local(node, scanned):
        return node
    if isinstance(node, ast.Name):
        value = scanned.program.only_value(node)
        return _lambda_in(value, scanned) if isinstance(value, (ast.Call, ast.List)) else None
    parts: list[ast.expr] = []
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            pass
        case ast.Call(func=called, args=arguments) if last(called) in _COMPOSES:
            parts = arguments
    return next((part for each in parts if (part := _lambda_in(each, scanned)) is not None), None)


def _local(node: ast.expr, scanned: Scanned) -> str:
    """Describe a function or class that pickle does not find by name; empty if it does, or if that is unknown."""
    if isinstance(node, ast.Lambda):
        return "a lambda"
    bound = scanned.program.only_binding(node) if isinstance(node, ast.Name) else None
    if bound is None or not isinstance(node, ast.Name):
        return ""
    if isinstance(bound.value, ast.Lambda):
        return "a lambda"
    if not isinstance(bound.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return ""
    kind = "class" if isinstance(bound.node, ast.ClassDef) else "function"
    if scanned.path is not None and scanned.path.suffix == ".ipynb":
        return f"a {kind} of a notebook"
    is_at_top = bound in scanned.program.module_bindings(node.id)
    return "" if is_at_top else f"a {kind} local to a function"
