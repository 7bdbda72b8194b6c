"""Three ways to follow a model.  Whatever the tracer, the operator calls are those of the simulated Mac."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.capture import blame
from opcheck.errors import CaptureError
from opcheck.simulate.tensor import MPS_DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable


class Tracer(NamedTuple):
    """How the model becomes something to run, and what is lost on the way."""

    trace: Callable[[torch.nn.Module, Any, Any], torch.nn.Module]
    misses: str


def _as_it_is(model: torch.nn.Module, _args: Any, _kwargs: Any) -> torch.nn.Module:
    return model


def _symbolic(model: torch.nn.Module, _args: Any, _kwargs: Any) -> torch.nn.Module:
    try:
        return torch.fx.symbolic_trace(model)
    except Exception as error:  # user code runs in there
        raise CaptureError(
            f"torch.fx.symbolic_trace cannot follow this model: {blame.one_line(error)}",
            context=blame.own_line(error),
            hint="it knows no control flow on values; use --tracer dispatch",
        ) from error


def _exported(model: torch.nn.Module, args: Any, kwargs: Any) -> torch.nn.Module:
    try:
        exported: Any = torch.export.export(model, args, kwargs, strict=False).module()
    except Exception as error:  # user code runs in there
        raise CaptureError(
            f"torch.export cannot export this model: {blame.one_line(error)}",
            context=blame.own_line(error),
            hint="use --tracer dispatch, which asks less of a model",
        ) from error
    for node in exported.graph.nodes:
        # The device that the export ran on is baked into every factory call.
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": MPS_DEVICE}
    exported.recompile()
    return exported  # type: ignore[no-any-return]


TRACERS: dict[str, Tracer] = {
    "dispatch": Tracer(
        _as_it_is,
        "the run that was made, and no other: branches on values or shapes that it did not take",
    ),
    "fx": Tracer(
        _symbolic,
        "control flow is fixed at its symbolic trace; a Python branch on the device is taken as on the CPU; "
        "lines inside a module that fx keeps whole are its own, not the caller's",
    ),
    "export": Tracer(
        _exported,
        "the graph that torch.export made on the CPU: a Python branch on the device, on grad mode or on "
        "autocast was decided there, and lines are those that export kept",
    ),
}
