"""When memory on MPS was taken and given back, counted in recorded calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opcheck.common.vocabulary import MemoryOrigin
from opcheck.model.records import Lifetime

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opcheck.capture.tensor_log import Numbers, Ref, TraceEntry
    from opcheck.simulator.tensor_meta import TensorMeta


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
    """One record for each storage on MPS, in the order in which they were taken.

    Args:
        calls: as a Recorder keeps them.
        freed: the tensor log's: how many calls were recorded when a storage was freed.
        placed: what a Mover put on MPS, by the number of its storage.
        numbers: the identities in the trace's records.
        before: calls of the trace that stand in front of the recorded ones.
    """
    first: dict[int, int] = dict.fromkeys(placed, 0)
    sizes: dict[int, int] = {storage: entry.nbytes for storage, entry in placed.items()}
    known: dict[TensorMeta, int] = {}
    for index, entry in enumerate(calls):
        for ref in _on_mps(entry):
            if ref.storage in placed:
                continue
            first.setdefault(ref.storage, before + index)
            size = known.get(ref.spec)
            if size is None:
                size = known[ref.spec] = _extent(ref.spec)
            # A view reaches less far than its base; resize_ makes a storage larger.
            sizes[ref.storage] = max(size, sizes.get(ref.storage, 0))
    # What is given back after the last call was held by the program, not by the run.
    end = len(calls)
    return tuple(
        Lifetime(
            storage=numbers.of("storage", storage),
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
    """Bytes from the beginning of the storage to the end of the tensor."""
    if not spec.stride and spec.shape:
        return 0  # a layout without strides; none is simulated so far
    if 0 in spec.shape:
        return 0
    last = sum((size - 1) * step for size, step in zip(spec.shape, spec.stride, strict=True))
    return (spec.offset + last + 1) * spec.dtype.itemsize
