"""TorchScript on the simulated Mac: the interpreter calls the dispatcher, and gets a tensor's device from C++."""

from __future__ import annotations

import io
from typing import Any

import torch

from opcheck.common.errors import ModelLoadError
from opcheck.common.text import one_line
from opcheck.simulator.tensor import MPS_DEVICE
from opcheck.tracing.torch_private.modules import inline_calls, method_names


def on_mps(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """Return the model, its TorchScript parts copied so that ``x.device`` in them is ``mps``.

    The copy is one that did not run yet: its graph is compiled when it is first called.

    Args:
        model: may be TorchScript, or hold it.
        name: what the report calls the model.

    Raises:
        ModelLoadError: a part was frozen, or cannot be copied.
    """
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return _copy(model, name)
    for key, child in list(model.named_children()):
        moved = on_mps(child, name)
        if moved is not child:
            setattr(model, key, moved)
    function = vars(model).get("function")  # capture/child/run.py, AsModule
    return _copy(function, name) if isinstance(function, torch.jit.ScriptFunction) else model


def _copy(script: Any, name: str) -> torch.nn.Module:
    is_module = isinstance(script, torch.jit.ScriptModule)
    if is_module and not hasattr(script, "training"):
        raise ModelLoadError(
            "a frozen TorchScript module cannot be moved: its weights are constants of the CPU",
            context=f"model {name}",
            hint="audit it as it is before torch.jit.freeze, which is to be called after .to('mps')",
        )
    if is_module and "forward" not in method_names(script):
        raise ModelLoadError(
            "this TorchScript module has no method forward that Python could call",
            context=f"model {name}",
            hint="script a module that calls it",
        )
    try:
        buffer = io.BytesIO()
        torch.jit.save(script, buffer)
        buffer.seek(0)
        copy: torch.nn.Module = torch.jit.load(buffer)
    except Exception as error:
        raise ModelLoadError(
            f"this TorchScript cannot be copied by torch.jit.save: {one_line(error)}",
            context=f"model {name}",
            hint="audit the torch.nn.Module that it was made from",
        ) from error
    if is_module:
        copy.train(script.training)
    _rewrite(copy)
    return copy


def _rewrite(module: Any) -> None:
    graph = module.forward.graph
    inline_calls(graph)
    asked = graph.findAllNodes("prim::device")
    if not asked:
        return
    graph.setInsertPoint(next(iter(graph.nodes())))
    device = graph.insertConstant(MPS_DEVICE)
    for node in asked:
        node.output().replaceAllUsesWith(device)
