"""``torch.export`` in a program traces on the CPU, below the emulation.

The exported program is put back on ``mps``. On a Mac, too, an export runs on fake tensors and calls
no kernel of MPS.
"""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.replacing import replaced
from opcheck.simulator.tensor import MPS_DEVICE, is_on_mps, placement
from opcheck.tracing.torch_private import backend, dispatch
from opcheck.tracing.torch_private.export import with_tensors
from opcheck.tracing.torch_private.modules import call_module
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: what is written beside a saved program that was on ``mps``
_MARK = "opcheck_device"


@contextlib.contextmanager
def export_below() -> Iterator[None]:
    """For the length of the block, ``torch.export`` works as on a Mac."""
    program = torch.export.ExportedProgram
    changes: list[tuple[Any, str, Any]] = [
        (torch.export, name, _exporting(getattr(torch.export, name)))
        for name in ("export", "export_for_training", "draft_export")
        if hasattr(torch.export, name)
    ]
    changes += [
        (torch.export, "save", _saving(torch.export.save)),
        (torch.export, "load", _loading(torch.export.load)),
        (program, "run_decompositions", _decomposing(program.run_decompositions)),
    ]
    with replaced(changes):
        yield


@contextlib.contextmanager
def _without_modes() -> Iterator[None]:
    """Without our modes: torch itself handles tensors of the CPU and fake ones."""
    call = torch.nn.Module.__call__
    torch.nn.Module.__call__ = call_module  # type: ignore[method-assign]
    lifted = backend.only_cpu_lifted()
    with contextlib.ExitStack() as left:
        for _ in range(dispatch.function_mode_depth()):
            left.enter_context(dispatch.pop_function_mode())
        left.enter_context(dispatch.disable_modes())
        backend.set_only_cpu_lifted(False)
        try:
            yield
        finally:
            backend.set_only_cpu_lifted(lifted)
            torch.nn.Module.__call__ = call  # type: ignore[method-assign]


def _exporting(original: Callable[..., Any]) -> Callable[..., Any]:
    def export(mod: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        tensors = [*_module_tensors(mod), *tree_leaves((args, kwargs))]
        moved = any(is_on_mps(tensor) for tensor in tensors)
        if moved:
            mod, args, kwargs = _module_on_cpu(mod), _on_cpu(args), _on_cpu(kwargs)
        with _without_modes():
            made = original(mod, args, kwargs, **options)
        return _to_mps(made) if moved else made

    return export


def _decomposing(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_decompositions(program: Any, *args: Any, **options: Any) -> Any:
        moved = _is_on_mps(program)
        with _without_modes():
            made = original(_to_cpu(program) if moved else program, *args, **options)
        return _to_mps(made) if moved else made

    return run_decompositions


def _saving(original: Callable[..., Any]) -> Callable[..., Any]:
    def save(ep: Any, f: Any, *, extra_files: Any = None, **options: Any) -> None:
        moved = _is_on_mps(ep)
        if moved:
            extra_files = {**(extra_files or {}), _MARK: "mps"}
        with _without_modes():
            original(_to_cpu(ep) if moved else ep, f, extra_files=extra_files, **options)

    return save


def _loading(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(f: Any, *, extra_files: Any = None, **options: Any) -> Any:
        extra = dict.fromkeys([*(extra_files or {}), _MARK], "")
        with _without_modes():
            made = original(f, extra_files=extra, **options)
        moved = extra.pop(_MARK)
        if extra_files is not None:
            extra_files.update(extra)
        return _to_mps(made) if moved == "mps" else made

    return load


# -- between the devices ---------------------------------------------------------------------------


def _module_tensors(module: Any) -> list[Any]:
    return [*module.parameters(), *module.buffers()] if isinstance(module, torch.nn.Module) else []


def _on_cpu(value: Any) -> Any:
    def copy_leaf(leaf: Any) -> Any:
        known = placement(leaf) if isinstance(leaf, torch.Tensor) else None
        if known is None or known.payload is None:
            return leaf
        values = known.payload.detach().clone()
        if isinstance(leaf, torch.nn.Parameter):
            return torch.nn.Parameter(values, leaf.requires_grad)
        return values.requires_grad_(leaf.requires_grad)

    with dispatch.without_function_modes(), dispatch.disable_modes():
        return tree_map(copy_leaf, value)


def _module_on_cpu(module: Any) -> Any:
    """A copy whose parameters and buffers are on the CPU."""
    known = {id(tensor): _on_cpu(tensor) for tensor in _module_tensors(module)}
    return copy.deepcopy(module, known)


def _is_on_mps(program: Any) -> bool:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    tensors += tree_leaves(program.example_inputs)
    return any(is_on_mps(tensor) for tensor in tensors)


def _to_cpu(program: Any) -> Any:
    return _place_program(program, _on_cpu, torch.device("cpu"))


def _to_mps(program: Any) -> Any:
    def moved_leaf(value: Any) -> Any:
        if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
            return value
        if is_on_mps(value):
            return value
        moved = value.detach().to(MPS_DEVICE)
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(moved, value.requires_grad)
        return moved

    return _place_program(program, lambda values: tree_map(moved_leaf, values), MPS_DEVICE)


def _place_program(program: Any, move: Callable[[Any], Any], device: torch.device) -> Any:
    """The same program with its tensors, and the devices in its graph, on the other device."""
    made = copy.copy(program)
    module = copy.copy(program.graph_module)
    module.graph = copy.deepcopy(program.graph_module.graph)
    for node in module.graph.nodes:
        named = node.kwargs.get("device")
        if named is not None and torch.device(named).type in ("cpu", "mps"):
            node.kwargs = {**node.kwargs, "device": device}
    module.recompile()
    with_tensors(
        made,
        state={name: move(value) for name, value in program.state_dict.items()},
        constants={name: move(value) for name, value in program.constants.items()},
        inputs=move(program.example_inputs),
        graph=module,
    )
    return made
