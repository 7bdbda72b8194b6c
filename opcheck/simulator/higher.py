"""Run higher-order operators (cond, while_loop, flex_attention ...) of a program that compiles nothing.

Their eager form is Python, so that a Mac runs the operators in it one by one, and so does the simulation.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch_context import DispatchContext
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.operators import PLAIN
from opcheck.simulator.routes import Kind, Route
from opcheck.tracing.torch_private.dispatch import DispatchKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.tracing.torch_private.dispatch import HigherOrderOperator

_V2_6, _V2_7, _V2_13 = (Version(2, minor) for minor in (6, 7, 13))


def make_route(func: HigherOrderOperator, context: DispatchContext) -> Route:
    """Return the route of a higher-order operator, which is never a leaf: its eager form runs."""
    return Route(
        func=func,
        name=f"higher_order::{func.name()}",
        operator=PLAIN,
        implicit=False,
        kind=Kind.PYTHON,
        body=functools.partial(_run, func, context),
    )


def _run(func: HigherOrderOperator, context: DispatchContext, *args: Any, **kwargs: Any) -> Any:
    """Run the eager form while the simulation is on.

    Raises:
        NotSimulatedError: it has none.
    """
    kernel = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
    if kernel is None:
        message = (
            f"the higher-order operator {func.name()} has no form that runs without a compiler"
        )
        raise NotSimulatedError(message)
    if func.name() == "flex_attention" and (devices := context.ask(_devices_of_flex)):
        text = f"FlexAttention is only supported on {devices} devices. Found input tensors on mps device."
        context.refuse(func, args[:3], "flex_attention_device", text)
    with _unseen(kernel.__globals__):
        return kernel(*args, **kwargs)


@contextlib.contextmanager
def _unseen(names: dict[str, Any]) -> Iterator[None]:
    """Hide the dispatch mode from forms that assert that none is on, as in a compiler (cond.py, scan.py of 2.13)."""
    asked = names.get("_get_current_dispatch_mode")
    if asked is None:
        yield
        return
    names["_get_current_dispatch_mode"] = lambda: None
    try:
        yield
    finally:
        names["_get_current_dispatch_mode"] = asked


def _devices_of_flex(target: Target) -> str:
    """Return the devices that the operator's Python function takes; empty if mps is among them.

    Source: torch/nn/attention/flex_attention.py, ``_validate_device`` (2.5 to 2.15).
    """
    if target.torch >= _V2_13:
        return ""
    if target.torch < _V2_6:
        return "CUDA"
    return "CUDA or CPU" if target.torch < _V2_7 else "CUDA, CPU or HPU"
