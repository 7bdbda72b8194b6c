"""Which forward call a call of autograd's belongs to.

Every node of the graph takes the next of the thread's sequence numbers while its forward call runs
(torch/csrc/autograd/function.h, ``Node``), so the counter after a call names the call's node: the trail keeps that
number plus one.  In backward the engine says which node runs.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, TypeVar

from opcheck.tracing.torch_private.autograd import (
    engine_code,
    next_sequence_number,
    running_node,
    sequence_number_of,
)

if TYPE_CHECKING:
    from types import CodeType

Place = TypeVar("Place")

#: A call below this frame, with no line of the program in between, is one of autograd's own.
ENGINE: CodeType = engine_code


class Trail(Generic[Place]):
    """The places of the forward calls, by the numbers of their nodes."""

    def __init__(self, nowhere: Place) -> None:
        self._numbers: list[int] = []
        self._places: list[Place] = []
        #: of the node that ran last: sums of gradients are made between two nodes.
        self._last = nowhere

    def note(self, place: Place) -> None:
        """Keep where a forward call was made; the first call after a node was made is the node's."""
        number = next_sequence_number()
        if not self._numbers or number > self._numbers[-1]:
            self._numbers.append(number)
            self._places.append(place)

    def of_running_node(self) -> Place:
        """Return where the forward call of the node that runs now was made."""
        node = running_node()
        if node is not None:
            # A call that makes two nodes (an in-place operator saves a clone) was noted for the later one.
            # Nodes that gather gradients have the largest number there is: they stand with what came last.
            index = bisect_left(self._numbers, sequence_number_of(node) + 1)
            if index < len(self._places):
                self._last = self._places[index]
        return self._last
