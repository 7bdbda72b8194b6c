"""The records of calls while the program runs: names and sizes of their tensors, never the tensors.

A tensor that the log held would outlive the program's own use of it: memory would grow, and the log could not know
when the program gives it back.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from opcheck.capture.dtype_origins import birth
from opcheck.common.vocabulary import Phase
from opcheck.simulator.tensor import is_on_mps
from opcheck.simulator.tensor_meta import TensorMeta, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from opcheck.capture.dtype_origins import Births, Made
    from opcheck.model.records import Birth
    from opcheck.simulator.calls import Call
    from opcheck.simulator.routes import Route
    from opcheck.tracing.source_locations import Site


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
    inner: tuple[str, ...] | None
    refusal: tuple[str, str] | None


class TraceEntry(NamedTuple):
    """A call with its place: cheap to make while the program runs, turned into records later."""

    call: RecordedCall
    site: Site
    module: str
    phase: Phase


class Numbers:
    """Identities within one trace, counted from one, so that two runs of a program give the same records."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int] = {}

    def of(self, kind: str, identity: int) -> int:
        """The number of this tensor, storage ...; a new one where it has none."""
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
        """The call without its tensors."""
        return RecordedCall(
            call.route,
            call.key,
            tuple([self.ref(tensor) for tensor in call.inputs]),
            tuple([self.ref(tensor) for tensor in call.outputs]),
            call.inner,
            call.refusal,
        )

    def ref(self, tensor: torch.Tensor) -> Ref:
        """The name of a tensor; its memory is watched from here on."""
        if is_on_mps(tensor):
            known = tensor._mps
            memory = known.memory
            memory.watcher = self._gave_back
            return Ref(known.number, memory.number, known.spec)
        number = self._number(tensor)
        return Ref(number, number, spec_of(tensor, "cpu"))

    def _number(self, tensor: torch.Tensor) -> int:
        # An id is given again once its tensor is gone; an attribute of ours would be pickled with the tensor.
        known = self._on_cpu.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        self._count += 1
        self._on_cpu[id(tensor)] = (weakref.ref(tensor), -self._count)
        made = None if self._births is None else self._births.of(tensor)
        if made is not None:
            self.made[-self._count] = made
        return -self._count

    def _gave_back(self, storage: int) -> None:
        self.freed[storage] = len(self._calls)

    def births(self, numbers: Numbers) -> Iterator[Birth]:
        """How tensors of the CPU that came to a call were made, where that is worth knowing."""
        for number, made in self.made.items():
            yield birth(made, numbers.of("tensor", number))
