"""The tensors of a run: their names while it runs, never the tensors, and how long their memory is held."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from opcheck.capture.child.recording.dtype_origins import Births, Made, birth
from opcheck.common.vocabulary import MemoryOrigin, Phase
from opcheck.model.records import Birth, Lifetime
from opcheck.simulator.dispatch.calls import Body, Call
from opcheck.simulator.dispatch.routes import Route
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, spec_of
from opcheck.tracing.source_locations import Site

# -- names -----------------------------------------------------------------------------------------
#
# A tensor that the log held would outlive the program's own use of it: memory would grow, and the log could not know
# when the program gives it back.


class Ref(NamedTuple):
    """A tensor as it was when its call was recorded; the numbers of those on the CPU are below zero."""

    number: int
    storage: int
    spec: TensorMeta


class RecordedCall(NamedTuple):
    """A ``Call`` of the simulator without its tensors."""

    route: Route
    key: tuple[Any, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    body: Body
    refusal: tuple[str, str] | None
    #: as in ``Call``
    recomputed: bool = False

    @property
    def inner(self) -> tuple[str, ...] | None:
        """The overloads that a composite kernel calls; None where its body could not be followed."""
        return self.body.names


class TraceEntry(NamedTuple):
    """A call with its place: cheap to make while the program runs, turned into records later."""

    call: RecordedCall
    site: Site
    module: str
    phase: Phase


class Numbers:
    """Identities within one trace, counted from 1, so that two runs of a program give the same records."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int] = {}

    def number(self, kind: str, identity: int) -> int:
        """Return the number of this tensor or storage; assign a new one where it has none."""
        return self._known.setdefault((kind, identity), len(self._known) + 1)


class TensorLog:
    """Names tensors, and notes when the program gives the memory of each back."""

    def __init__(self, calls: Sequence[object], births: Births | None = None) -> None:
        #: number of a storage -> how many calls were recorded when it was freed
        self.freed: dict[int, int] = {}
        self._calls = calls
        self._on_cpu: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._count = 0
        self._births = births
        #: number of a tensor on the CPU -> how it was made, where that is worth knowing
        self.made: dict[int, Made] = {}

    def keep(self, call: Call) -> RecordedCall:
        """Return the call without its tensors."""
        return RecordedCall(
            call.route,
            call.key,
            tuple([self.ref(tensor) for tensor in call.inputs]),
            tuple([self.ref(tensor) for tensor in call.outputs]),
            call.body,
            call.refusal,
            call.recomputed,
        )

    def ref(self, tensor: torch.Tensor) -> Ref:
        """Return the name of a tensor; its memory is watched from here on."""
        if is_on_mps(tensor):
            state = tensor._mps
            memory = state.memory
            memory.watcher = self._gave_back
            return Ref(state.number, memory.number, state.spec)
        number = self._number(tensor)
        return Ref(number, number, spec_of(tensor, "cpu"))

    def _number(self, tensor: torch.Tensor) -> int:
        # An id is given again once its tensor is gone; an attribute of ours would be pickled with the tensor.
        state = self._on_cpu.get(id(tensor))
        if state is not None and state[0]() is tensor:
            return state[1]
        self._count += 1
        self._on_cpu[id(tensor)] = (weakref.ref(tensor), -self._count)
        result = None if self._births is None else self._births.origin(tensor)
        if result is not None:
            self.made[-self._count] = result
        return -self._count

    def _gave_back(self, storage: int) -> None:
        self.freed[storage] = len(self._calls)

    def births(self, numbers: Numbers) -> Iterator[Birth]:
        """Yield how tensors of the CPU that came to a call were made, where that is worth knowing."""
        for number, result in self.made.items():
            yield birth(result, numbers.number("tensor", number))


# -- lifetimes -------------------------------------------------------------------------------------


class Placed(NamedTuple):
    """A tensor that was on MPS before the first call."""

    #: parameter, buffer, input
    kind: MemoryOrigin
    name: str
    nbytes: int


def lifetimes(
    calls: Sequence[TraceEntry],
    freed: Mapping[int, int],
    placed: Mapping[int, Placed],
    numbers: Numbers,
    before: int = 0,
) -> tuple[Lifetime, ...]:
    """Return a record for each storage on MPS, in the order of their allocation.

    Args:
        calls: as a Recorder keeps them.
        freed: the tensor log's: how many calls were recorded when a storage was freed.
        placed: what a Mover put on MPS, by the number of its storage.
        numbers: the identities in the trace's records.
        before: calls of the trace that are in front of the recorded ones.
    """
    first: dict[int, int] = dict.fromkeys(placed, 0)
    sizes: dict[int, int] = {storage: entry.nbytes for storage, entry in placed.items()}
    state: dict[TensorMeta, int] = {}
    for index, entry in enumerate(calls):
        for ref in _on_mps(entry):
            if ref.storage in placed:
                continue
            first.setdefault(ref.storage, before + index)
            size = state.get(ref.spec)
            if size is None:
                size = state[ref.spec] = _extent(ref.spec)
            # A view reaches less far than its base; resize_ makes a storage larger.
            sizes[ref.storage] = max(size, sizes.get(ref.storage, 0))
    # What is given back after the last call was held by the program, not by the run.
    end = len(calls)
    return tuple(
        Lifetime(
            storage=numbers.number("storage", storage),
            nbytes=sizes[storage],
            first=index,
            freed=before + freed[storage] if freed.get(storage, end) < end else None,
            kind=placed[storage].kind if storage in placed else "result",
            name=placed[storage].name if storage in placed else "",
        )
        for storage, index in first.items()
    )


def _on_mps(entry: TraceEntry) -> Iterator[Ref]:
    # The inputs too: what was made outside of a recorded call is first seen there.
    return (
        ref for part in (entry.call.inputs, entry.call.outputs) for ref in part if ref.storage > 0
    )


def _extent(spec: TensorMeta) -> int:
    """Return the bytes from the beginning of the storage to the end of the tensor."""
    if not spec.stride and spec.shape:
        return 0  # a layout without strides; none is simulated so far
    if 0 in spec.shape:
        return 0
    last = sum((size - 1) * step for size, step in zip(spec.shape, spec.stride, strict=True))
    return (spec.offset + last + 1) * spec.dtype.itemsize
