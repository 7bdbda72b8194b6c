"""Follows a model in three ways.  The operator calls are those of the simulated Mac in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from opcheck.capture.child.loading.fixed_programs import as_module, read_on_mps
from opcheck.common.errors import CaptureError
from opcheck.common.text import one_line
from opcheck.tracing.source_locations import describe_raise
from opcheck.tracing.torch_private.export import FakeTensorMode
from opcheck.tracing.torch_private.modules import buffers_of, parameters_of, with_other_tensors
from opcheck.tracing.torch_private.trees import tree_map_only


def _as_it_is(model: torch.nn.Module, _args: Any, _kwargs: Any) -> torch.nn.Module:
    return model


class _LineTracer(torch.fx.Tracer):
    """torch.fx.symbolic_trace's tracer, which keeps the lines besides."""

    record_stack_traces = True


def _symbolic(model: torch.nn.Module, _args: Any, _kwargs: Any) -> torch.nn.Module:
    try:
        return torch.fx.GraphModule(model, _LineTracer().trace(model))
    except Exception as error:  # user code runs in there
        raise CaptureError(
            f"torch.fx.symbolic_trace cannot follow this model: {one_line(error)}",
            context=describe_raise(error),
            hint="it knows no control flow on values; use --tracer dispatch",
        ) from error


def _run_export(model: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    try:
        exported = _export(model, args, kwargs)
    except Exception as error:  # user code runs in there
        raise CaptureError(
            f"torch.export cannot export this model: {one_line(error)}",
            context=describe_raise(error),
            hint="use --tracer dispatch, which asks less of a model",
        ) from error
    # The device that the export ran on is baked into every factory call.
    read_on_mps(exported)
    return exported


def _export(model: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    """Export with fake CPU tensors, since the weights may be on meta; the result contains the model's own again."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"
            )

    own = dict(_tensors(model))
    state = {
        name: torch.nn.Parameter(fake(tensor), requires_grad=False)
        if isinstance(tensor, torch.nn.Parameter)
        else fake(tensor)
        for name, tensor in own.items()
    }
    args, kwargs = tree_map_only(torch.Tensor, fake, (args, kwargs))
    with with_other_tensors(model, state):
        exported = as_module(torch.export.export(model, args, kwargs, strict=False))
    for name, _ in list(_tensors(exported)):
        if name in own:
            path, _, leaf = name.rpartition(".")
            holder = exported.get_submodule(path)
            for tensors in (parameters_of(holder), buffers_of(holder)):
                if leaf in tensors:
                    tensors[leaf] = own[name]
    return exported


def _tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


#: what each way misses is stated in capture/request.py
TRACERS: dict[str, Callable[[torch.nn.Module, Any, Any], torch.nn.Module]] = {
    "dispatch": _as_it_is,
    "fx": _symbolic,
    "export": _run_export,
}
