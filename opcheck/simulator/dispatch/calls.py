"""Define a leaf call, and the sinks that record calls."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch

from opcheck.data.tables import refused_by
from opcheck.simulator.dispatch.routes import Route
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, spec_of


class InnerCall(NamedTuple):
    """One call that a composite kernel makes, without its tensors."""

    route: Route
    #: as in ``Call``
    key: tuple[Any, ...]
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]


class Body(NamedTuple):
    """What a composite kernel calls."""

    #: the overloads; None where its body could not be followed
    names: tuple[str, ...] | None
    #: the calls themselves, as far as their arguments are known
    calls: tuple[InnerCall, ...] = ()


NO_BODY = Body(())
NOT_FOLLOWED = Body(None)


class Call(NamedTuple):
    """One leaf call, as a sink receives it."""

    route: Route
    #: the overload, the number of positional arguments, then these and name, value of the others
    key: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    #: what a composite kernel calls
    body: Body
    #: why a Mac refuses, whatever is registered
    refusal: tuple[str, str] | None
    #: why nothing computed it here, so that no Mac's result is known; empty where it was computed
    not_computed: str = ""
    #: draws from the default generator again, where torch.utils.checkpoint computes a forward pass again
    recomputed: bool = False

    @property
    def inner(self) -> tuple[str, ...] | None:
        """The overloads that a composite kernel calls; None where its body could not be followed."""
        return self.body.names

    @property
    def in_refused_dtype(self) -> bool:
        """Return whether an input has a dtype that no backend computes the overload in."""
        return any(refused_by(self.route.name, meta.dtype_name) for meta in metas(self.inputs))


class Sink(Protocol):
    """Records the calls as they happen."""

    def record(self, call: Call) -> None:
        """Record one leaf call."""

    def count_requests(self, operator: str) -> int:
        """Return how often ``operator`` has requested unknown values at this place."""

    def guess(self, operator: str, answer: Any) -> None:
        """Record that ``operator`` requested unknown values and received ``answer``."""


def metas(tensors: Sequence[torch.Tensor]) -> tuple[TensorMeta, ...]:
    """Return the metadata of tensors on MPS or on the CPU."""
    return tuple(
        tensor._mps.spec if is_on_mps(tensor) else spec_of(tensor, "cpu") for tensor in tensors
    )


#: a body that requests more values than this is assumed never to end.
_MOST_GUESSES = 1_000


class BodySink:
    """A sink that keeps calls without their tensors, while the simulator follows a composite's body."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.calls: dict[tuple[Any, ...], InnerCall] = {}
        self._asked = 0

    def record(self, call: Call) -> None:
        """Record the call; a composite inside a composite is replaced by the operators that it calls."""
        if call.route.has_body and call.inner is not None:
            names, calls = call.inner, call.body.calls
        else:
            result = InnerCall(call.route, call.key, metas(call.inputs), metas(call.outputs))
            names, calls = (call.route.name,), (result,)
        self.names.update(dict.fromkeys(names))
        self.calls.update({call.key: call for call in calls})

    def body(self, composite: str) -> Body:
        """Return what the composite's body called, without calls of the composite itself."""
        self.names.pop(composite, None)
        calls = tuple(call for call in self.calls.values() if call.route.name != composite)
        return Body(tuple(self.names), calls)

    def count_requests(self, _operator: str) -> int:
        """Return how often values were requested, at any place."""
        return self._asked

    def guess(self, operator: str, answer: Any) -> None:
        """Count the request; the values are unknown by design, and the body continues with the assumption.

        Raises:
            RuntimeError: the body requests values without end.
        """
        self._asked += 1
        if self._asked > _MOST_GUESSES:
            message = f"{operator} got the answer {answer} and requests it again and again"
            raise RuntimeError(message)
