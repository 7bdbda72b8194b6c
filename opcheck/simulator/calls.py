"""Define a leaf call, and the sinks that record calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch

    from opcheck.simulator.routes import Route


class Call(NamedTuple):
    """One leaf call, as a sink receives it."""

    route: Route
    #: the overload, the number of positional arguments, then these and name, value of the others
    key: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    #: overloads that a composite kernel calls; None where its body could not be followed
    inner: tuple[str, ...] | None
    #: why a Mac refuses, whatever is registered
    refusal: tuple[str, str] | None


class Sink(Protocol):
    """Records the calls as they happen."""

    def record(self, call: Call) -> None:
        """Record one leaf call."""

    def asked(self, operator: str) -> int:
        """Return how often ``operator`` has requested unknown values at this place."""

    def guess(self, operator: str, answer: Any) -> None:
        """Record that ``operator`` requested unknown values and received ``answer``."""


#: a body that requests more values than this is taken for one that never ends.
_MOST_GUESSES = 1_000


class NamesOnly:
    """A sink that keeps only the names of overloads, while the simulator follows a composite's body."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._asked = 0

    def record(self, call: Call) -> None:
        """Record the name; a composite inside a composite is replaced by the operators that it calls."""
        followed = call.route.has_body and call.inner is not None
        for name in call.inner or () if followed else (call.route.name,):
            self.names.setdefault(name)

    def asked(self, _operator: str) -> int:
        """Return how often values were requested, at any place."""
        return self._asked

    def guess(self, operator: str, answer: Any) -> None:
        """Count the request; the values are unknown by design, and the body goes on with the assumption.

        Raises:
            RuntimeError: the body requests values without end.
        """
        self._asked += 1
        if self._asked > _MOST_GUESSES:
            message = f"{operator} was answered {answer} and asks again"
            raise RuntimeError(message)
