"""Packages of torch as a program finds them on a Mac: distributed, compile, jit and export.

``torch.export`` traces on the CPU, below the emulation, and the exported program is put back on ``mps``.  An export
on a Mac also runs on fake tensors, and calls no kernel of MPS.
"""

import contextlib
import copy
import functools
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, is_on_mps, placement
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.target_reads import READS, is_before
from opcheck.simulator.visible.methods import as_device
from opcheck.simulator.visible.requirements import kind_of
from opcheck.tracing.eager_compile import eager_compile
from opcheck.tracing.source_locations import is_own_code
from opcheck.tracing.torch_private import backend, compilation, dispatch
from opcheck.tracing.torch_private.backend import ACCELERATOR, SHARING_STRATEGIES, VERIFY_PARAMS
from opcheck.tracing.torch_private.export import with_tensors
from opcheck.tracing.torch_private.modules import SCRIPT_MODULE, call_module
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map

#: takes the name of a function that was left out
Tell = Callable[[str], None]
#: modules that the program scripted or traced, each with the function that does so to a copy
LeftOut = weakref.WeakKeyDictionary[Any, Callable[[Any], Any]]


#: in the graph of a script
_READS_DEVICE = re.compile(r"prim::(?:device|is_cpu|is_mps)\(|aten::get_device\(")

#: ... of a trace
_NAMES_CPU = re.compile(r'value="cpu"')

#: distributed_c10d.py: the first release whose init_process_group() takes gloo for a machine with mps.
_DEFAULT_BACKEND = Version(2, 8)
_STRATEGY = "file_system"


@contextlib.contextmanager
def processes_of_mac(target: Target) -> Iterator[None]:
    """For the length of the block, the two packages do what they do on a Mac.

    * DistributedDataParallel begins with the collective that it begins with there.
    * ``init_process_group()`` without a backend raises before 2.8.
    * ``file_system`` is the one way to share tensors (torch/multiprocessing/__init__.py).
    """
    # This machine shares them in its own way all the same: file_system needs a helper process.
    strategy: Callable[[], str] = torch.multiprocessing.get_sharing_strategy

    def strategy_of_mac() -> str:
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return strategy() if asks.startswith("torch.") else _STRATEGY

    changes: list[tuple[Any, str, Any]] = [
        (torch.multiprocessing, "get_sharing_strategy", strategy_of_mac),
        (*SHARING_STRATEGIES, {_STRATEGY}),
    ]
    if dist.is_available():
        original = VERIFY_PARAMS.value()

        def verify(group: Any, tensors: Sequence[torch.Tensor], *logger: Any) -> None:
            # torch/csrc/distributed/c10d/reducer.cpp, verify_params_across_processes: it gathers the number of
            # parameters on their device, and C++ takes the device of simulated tensors for the CPU.
            if any(is_on_mps(tensor) for tensor in tensors[:1]):
                number = torch.tensor([len(tensors)], device=tensors[0].device)
                numbers = [torch.empty_like(number) for _ in range(group.size())]
                dist.all_gather(numbers, number, group=group)
            original(group, tensors, *logger)

        defaults, has_mps = dist.Backend.default_device_backend_map, target.torch >= _DEFAULT_BACKEND
        backends = {device: name for device, name in defaults.items() if device != "mps" or has_mps}
        changes += [
            (*ACCELERATOR, lambda *_: torch.device("mps")),
            (*VERIFY_PARAMS, verify),
            (dist.Backend, "default_device_backend_map", backends),
        ]
    with replace_attributes(changes):
        yield


@contextlib.contextmanager
def run_uncompiled(tell: Tell) -> Iterator[None]:
    """For the length of the block; ``tell`` is called for each use.

    TorchScript reads the device in C++, which is ``cpu``: what the program scripts is returned as it is, as with
    PYTORCH_JIT=0.  What was scripted before the block, or is loaded in it, runs in C++ all the same.
    """
    left_out: LeftOut = weakref.WeakKeyDictionary()
    changes: list[tuple[Any, str, Any]] = [
        (torch, "compile", eager_compile(tell, _refuse_backend)),
        *((torch.jit, name, _scripting(name, tell, left_out)) for name in ("script", "trace", "trace_module")),
        *((torch.jit, name, lambda module, *_, **__: module) for name in ("freeze", "optimize_for_inference")),
        *((owner, "save", _writing(owner.save, left_out)) for owner in (torch.jit, SCRIPT_MODULE)),
        (torch.jit, "load", _loading(torch.jit.load)),
        (torch.jit.ScriptFunction, "__call__", _calling(torch.jit.ScriptFunction.__call__)),
        (SCRIPT_MODULE, "__call__", _calling(torch.nn.Module.__call__)),
    ]
    owner: Any = torch.nn.Module
    with replace_attributes(changes):
        owner.save = _Save(left_out)
        try:
            yield
        finally:
            del owner.save


def _refuse_backend(name: object) -> None:
    """Raise what torch.compile raises of a backend that there is not, such as mps."""
    if isinstance(name, str) and name not in ("inductor", "eager", "aot_eager"):
        compilation.backend(name)


def _scripting(name: str, tell: Tell, left_out: LeftOut) -> Callable[..., Any]:
    original = getattr(torch.jit, name)

    @functools.wraps(original)
    def script(*args: Any, **options: Any) -> Any:
        code = sys._getframe(1).f_code
        if kind_of(code) == "own":
            # torch scripts decompositions for forward mode (torch/_decomp/decompositions_for_jvp.py).
            return original(*args, **options)
        # A library decorates functions with it that the program may never call.
        if is_own_code(code.co_filename):
            tell(f"torch.jit.{name}")
        bound = inspect.signature(original).bind(*args, **options).arguments
        module, rest = next(iter(bound.values())), _on_cpu(dict([*bound.items()][1:]))
        # A trace calls the module.
        calls: Any = {"__call__": bound.get("example_inputs", ())} if name == "trace" else bound.get("inputs", {})
        for method, inputs in calls.items():
            positional = inputs if isinstance(inputs, (list, tuple)) else (inputs,)
            getattr(module, method)(*positional, **bound.get("example_kwarg_inputs", {}))
        if isinstance(module, torch.nn.Module):
            left_out[module] = lambda on_cpu: original(on_cpu, **rest)
        return module

    return script


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call of a script, whose C++ reads that a tensor on mps is on the CPU.

    It also reads names of torch that the target may lack (torch.compiler.is_exporting), not for the program.
    """
    device_readers = weakref.WeakKeyDictionary[Any, bool]()  # the graph of a large script takes long to print

    def call(script: Any, *args: Any, **options: Any) -> Any:
        is_there = any(map(is_on_mps, tree_leaves((args, options))))
        if is_there and script not in device_readers:
            device_readers[script] = _READS_DEVICE.search(str(script.inlined_graph)) is not None
        if is_there and device_readers[script]:
            raise NotSimulatedError("TorchScript that reads a tensor's device is not emulated: it would read cpu")
        return original(script, *args, **options)

    return call


def _writing(original: Callable[..., Any], left_out: LeftOut) -> Callable[..., Any]:
    def save(module: Any, f: Any, _extra_files: Any = None, **options: Any) -> None:
        moved = any(map(is_on_mps, _module_tensors(module)))
        if module in left_out:
            with _without_modes():
                module = left_out[module](_copy_to_cpu(module))
            if _NAMES_CPU.search(str(module.inlined_graph)):
                raise NotSimulatedError("torch.jit.save is not emulated for a graph that names a device, here cpu")
        elif moved or not isinstance(module, SCRIPT_MODULE):
            raise NotSimulatedError("torch.jit.save is emulated for modules that were scripted or traced here")
        # C++ would read memory that tensors on mps do not have.
        original(module, f, _extra_files={**(_extra_files or {}), **({_MARK: "mps"} if moved else {})}, **options)

    return save


class _Save:
    """A method of scripted and traced modules alone; no property, which TorchScript would compile."""

    def __init__(self, left_out: LeftOut) -> None:
        self._left_out = left_out

    def __get__(self, module: Any, owner: Any = None) -> Callable[..., Any]:
        """Return the method of a module, bound to it."""
        if module is None or module not in self._left_out:
            raise AttributeError(name="save", obj=module or owner)
        return functools.partial(torch.jit.save, module)


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(f: Any, map_location: Any = None, _extra_files: Any = None, **options: Any) -> Any:
        extra = {**(_extra_files or {}), _MARK: ""}
        moves = as_device(map_location) is MPS_DEVICE
        loaded = original(f, "cpu" if moves else map_location, extra, **options)
        moves |= extra.pop(_MARK) in ("mps", b"mps") and map_location is None
        if moves and READS.ask(is_before, Version(2, 1)):  # unpickler.cpp; pull request 102204
            raise RuntimeError("supported devices include CPU, CUDA and HPU, however got MPS")
        (_extra_files if _extra_files is not None else {}).update(extra)
        return loaded.to(MPS_DEVICE) if moves else loaded

    return load


#: the mark in a saved program that was on ``mps``
_MARK = "opcheck_device"


@contextlib.contextmanager
def export_below() -> Iterator[None]:
    """For the length of the block, ``torch.export`` works as on a Mac."""
    program = torch.export.ExportedProgram
    changes: list[tuple[Any, str, Any]] = [
        (torch.export, name, functools.partial(_export, getattr(torch.export, name)))
        for name in ("export", "export_for_training", "draft_export")
        if hasattr(torch.export, name)
    ]
    changes += [
        (torch.export, "save", functools.partial(_save, torch.export.save)),
        (torch.export, "load", functools.partial(_load, torch.export.load)),
        (program, "run_decompositions", _decomposing(program.run_decompositions)),
    ]
    with replace_attributes(changes):
        yield


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    """Without our modes: torch itself handles tensors of the CPU and fake ones."""
    lifted = backend.only_cpu_lifted()
    with contextlib.ExitStack() as left:
        left.enter_context(replace_attributes([(torch.nn.Module, "__call__", call_module)]))
        for _ in range(dispatch.function_mode_depth()):
            left.enter_context(dispatch.pop_function_mode())
        left.enter_context(dispatch.disable_modes())
        left.callback(backend.set_only_cpu_lifted, lifted)
        backend.set_only_cpu_lifted(False)
        yield


def _export(original: Callable[..., Any], mod: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
    moved = any(is_on_mps(tensor) for tensor in [*_module_tensors(mod), *tree_leaves((args, kwargs))])
    if moved:
        mod = _copy_to_cpu(mod)
        args, kwargs = _on_cpu(args), _on_cpu(kwargs)
    with _without_modes():
        exported = original(mod, args, kwargs, **options)
    return _to_mps(exported) if moved else exported


def _decomposing(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_decompositions(program: Any, *args: Any, **options: Any) -> Any:
        moved = _is_on_mps(program)
        with _without_modes():
            exported = original(_to_cpu(program) if moved else program, *args, **options)
        return _to_mps(exported) if moved else exported

    return run_decompositions


def _save(original: Callable[..., Any], ep: Any, f: Any, *, extra_files: Any = None, **options: Any) -> None:
    moved = _is_on_mps(ep)
    if moved:
        extra_files = {**(extra_files or {}), _MARK: "mps"}
    with _without_modes():
        original(_to_cpu(ep) if moved else ep, f, extra_files=extra_files, **options)


def _load(original: Callable[..., Any], f: Any, *, extra_files: Any = None, **options: Any) -> Any:
    extra = dict.fromkeys([*(extra_files or {}), _MARK], "")
    with _without_modes():
        exported = original(f, extra_files=extra, **options)
    moved = extra.pop(_MARK)
    if extra_files is not None:
        extra_files.update(extra)
    return _to_mps(exported) if moved == "mps" else exported


# -- between the devices ---------------------------------------------------------------------------


def _module_tensors(module: Any) -> list[Any]:
    return [*module.parameters(), *module.buffers()] if isinstance(module, torch.nn.Module) else []


def _copy_to_cpu(module: Any) -> Any:
    return copy.deepcopy(module, {id(tensor): _on_cpu(tensor) for tensor in _module_tensors(module)})


def _on_cpu(value: Any) -> Any:
    def copy_leaf(leaf: Any) -> Any:
        place = placement(leaf) if isinstance(leaf, torch.Tensor) else None
        if place is None or place.payload is None:
            return leaf
        values = place.payload.detach().clone()
        if isinstance(leaf, torch.nn.Parameter):
            return torch.nn.Parameter(values, leaf.requires_grad)
        return values.requires_grad_(leaf.requires_grad)

    with dispatch.without_function_modes(), dispatch.disable_modes():
        return tree_map(copy_leaf, value)


def _is_on_mps(program: Any) -> bool:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    tensors += tree_leaves(program.example_inputs)
    return any(is_on_mps(tensor) for tensor in tensors)


def _to_cpu(program: Any) -> Any:
    return _place_program(program, _on_cpu, torch.device("cpu"))


def _to_mps(program: Any) -> Any:
    def moved_leaf(value: Any) -> Any:
        if type(value) not in {torch.Tensor, torch.nn.Parameter} or is_on_mps(value):
            return value
        moved = value.detach().to(MPS_DEVICE)
        return torch.nn.Parameter(moved, value.requires_grad) if type(value) is torch.nn.Parameter else moved

    return _place_program(program, lambda values: tree_map(moved_leaf, values), MPS_DEVICE)


def _place_program(program: Any, move: Callable[[Any], Any], device: torch.device) -> Any:
    """The same program with its tensors, and the devices in its graph, on the other device."""
    program_copy = copy.copy(program)
    module = copy.copy(program.graph_module)
    module.graph = copy.deepcopy(program.graph_module.graph)
    for node in module.graph.nodes:
        named = node.kwargs.get("device")
        if named is not None and torch.device(named).type in ("cpu", "mps"):
            node.kwargs = {**node.kwargs, "device": device}
    module.recompile()
    with_tensors(
        program_copy,
        state={name: move(value) for name, value in program.state_dict.items()},
        constants={name: move(value) for name, value in program.constants.items()},
        inputs=move(program.example_inputs),
        graph=module,
    )
    return program_copy
