"""Track which nodes of autograd's graph are on MPS, because temporaries that C++ makes for such a node belong there.

The formulas (FunctionsManual.cpp, derivatives.yaml) make their temporaries with ``x.options()``, which says ``cpu``
for a simulated tensor, and in backward there is no API call that would tell (simulator/dispatch_context.py).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opcheck.common.replacing import replaced
from opcheck.simulator.gradient_devices import custom_functions_checked, validated
from opcheck.tracing.torch_private.autograd import (
    RUN_BACKWARD,
    next_sequence_number,
    running_node,
    sequence_number_of,
)
from opcheck.tracing.torch_private.dispatch import function_mode_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.overrides import TorchFunctionMode

    from opcheck.simulator.dispatch_context import DispatchContext


class Nodes:
    """Records the nodes that calls on MPS made, by their sequence numbers.

    A node takes the next number before its call reaches the dispatcher's Python key (VariableType.cpp), so that all
    numbers since the call before are of this one: an operator in place makes two nodes, it saves a clone first.
    """

    def __init__(self) -> None:
        self._noted = next_sequence_number()
        self._on_mps: set[int] = set()

    def note(self, *, on_mps: bool) -> None:
        """Note that a call has reached the dispatcher."""
        number = next_sequence_number()
        if number > self._noted:
            if on_mps:
                self._on_mps.update(range(self._noted, number))
            self._noted = number

    def running_on_mps(self) -> bool:
        """Return whether the node that autograd's engine runs now is on MPS."""
        node = running_node()
        return node is not None and sequence_number_of(node) in self._on_mps

    def name(self) -> str:
        """Return the name of the node that runs now; empty if none does."""
        node = running_node()
        return "" if node is None else str(node.name())


@contextlib.contextmanager
def engine_seen_by(mode: TorchFunctionMode, context: DispatchContext) -> Iterator[None]:
    """Keep ``mode`` on while autograd's engine runs, for what the program itself calls there.

    Tensor.backward and torch.autograd.grad are API calls, for which the mode is off; hooks, custom functions and what
    a checkpoint runs again are the program's.
    """
    run = RUN_BACKWARD.value()

    def running(tensors: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        on = any(each is mode for each in function_mode_stack())
        gradients = validated(gradients, tensors, "")
        with context.engine(), contextlib.nullcontext() if on else mode:
            return run(tensors, gradients, *args, **kwargs)

    with replaced([(*RUN_BACKWARD, running)]), custom_functions_checked():
        yield
