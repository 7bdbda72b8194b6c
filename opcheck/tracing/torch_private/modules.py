"""Tables of ``torch.nn.Module``, graphs of ``torch.fx``, TorchScript."""

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from opcheck.tracing.torch_private import require_names

with require_names("following modules"):
    parameters_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter("_parameters")
    """The table of a module's own parameters, to exchange them in place. Required."""

    buffers_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter("_buffers")
    """The table of a module's own buffers, to exchange them in place. Required."""

    pre_hooks_of: Callable[[torch.nn.Module], dict[int, Any]] = operator.attrgetter("_forward_pre_hooks")
    """The hooks that run before ``forward``, among them the check of an exported program's inputs.
    Required.
    """

    for _getter in (parameters_of, buffers_of, pre_hooks_of):
        _getter(torch.nn.Identity())

    apply_to_tensors: Callable[..., torch.nn.Module] = torch.nn.Module._apply
    """Replaces each tensor of a module: ``Module.to(dtype)`` would make complex weights real.
    Required.
    """

    call_module = torch.nn.Module._wrapped_call_impl
    """What ``Module.__call__`` is before anything replaces it. Required."""

    with_other_tensors: Callable[..., AbstractContextManager[None]] = torch.nn.utils.stateless._reparametrize_module
    """A context that gives a module other parameters and buffers. Required."""

    BatchNorm = torch.nn.modules.batchnorm._BatchNorm
    """The base of the layers that normalize by the batch's statistics. Required."""

    Dropout = torch.nn.modules.dropout._DropoutNd
    """The base of the dropout layers. Required."""

    root_of: Callable[[torch.fx.Graph], torch.fx.Node] = operator.attrgetter("_root")
    """The node before the first of a graph, to insert placeholders behind it. Required."""
    root_of(torch.fx.Graph())

    inline_calls = torch._C._jit_pass_inline
    """Inlines the calls of a TorchScript graph, so that each ``prim::device`` is in it.
    Required.
    """


def lines_of(graph: torch.fx.GraphModule) -> dict[int, int] | None:
    """Return the numbers of a graph's nodes by the lines of its code, counted from its ``def``.

    Source: torch/fx/graph.py, ``_lineno_map``.

    Optional: the result is None without it, and a call in a graph that is run again has no line of
    the model.
    """
    return (graph._lineno_map or {}) if hasattr(graph, "_lineno_map") else None


def strip_compiled(model: Any) -> Any:
    """Return what ``torch.compile`` wrapped, or the model itself where nothing wrapped it.

    Optional: a wrapper that hides its module is followed as it is.
    """
    return getattr(model, "_orig_mod", model)


with require_names("writing TorchScript"):
    SCRIPT_MODULE: Any = torch.jit._script.RecursiveScriptModule
    """The class of TorchScript modules that has ``save``. Required; replaced."""


def method_names(script: torch.jit.ScriptModule) -> list[str]:
    """Return the methods that a TorchScript module has. Required."""
    with require_names("reading TorchScript"):
        return [*script._c._method_names()]
