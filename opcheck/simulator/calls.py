"""One leaf call, and what takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch

    from opcheck.simulator.routes import Route


class Call(NamedTuple):
    """One leaf call, as the sink gets it."""

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
    """Takes the calls as they happen."""

    def record(self, call: Call) -> None:
        """Take one leaf call."""

    def asked(self, operator: str) -> int:
        """How often ``operator`` has asked for unknown values at this place."""

    def guess(self, operator: str, answer: Any) -> None:
        """Take note that ``operator`` asked for unknown values and was answered ``answer``."""


#: a body that asks for more values than these does not end.
_MOST_GUESSES = 1_000


class NamesOnly:
    """A sink that keeps the names of the overloads: of a composite's body, which is being followed."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._asked = 0

    def record(self, call: Call) -> None:
        """Take the name; a composite inside of a composite stands for what it calls itself."""
        followed = call.route.has_body and call.inner is not None
        for name in call.inner or () if followed else (call.route.name,):
            self.names.setdefault(name)

    def asked(self, _operator: str) -> int:
        """How often values were asked for, wherever."""
        return self._asked

    def guess(self, operator: str, answer: Any) -> None:
        """Count the question; values are unknown by design, and the body goes on with the assumption.

        Raises:
            RuntimeError: the body asks without end.
        """
        self._asked += 1
        if self._asked > _MOST_GUESSES:
            message = f"{operator} was answered {answer} and asks again"
            raise RuntimeError(message)
