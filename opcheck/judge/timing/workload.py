"""Reduce the calls of a run to the work of a single pass, step or token, for an estimate of its time."""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from opcheck.capture.request import AS_PIPELINE
from opcheck.common.grouping import group_values
from opcheck.common.vocabulary import RouteKind, TimeUnit
from opcheck.data.chips import SPEED
from opcheck.data.kernel_routes import is_bookkeeping
from opcheck.judge.callgraph import RoutedCall, copies, is_view, nbytes, reason_to_wait
from opcheck.model.records import CallWork, OpCall, TensorSpec, Trace, Workload

#: ``generate(max_new_tokens=3, ...)``: what a text model is called for.
_GENERATE = re.compile(r"generate\((?:.*?max_new_tokens=(\d{1,4})\b)?")
#: Work without a formula.
NONE = "none"
#: An optimizer makes its state in the first step alone.
_STATE = ("aten::zeros_like", "aten::empty_like")


class _RepeatedPart(NamedTuple):
    unit: TimeUnit
    covers: str
    calls: Sequence[RoutedCall]


def workloads(trace: Trace, calls: Sequence[RoutedCall]) -> tuple[Workload, ...]:
    """Return the work of each part of a run that repeats; none if the run broke off.

    Args:
        trace: the run, with the calls of the model that it is.
        calls: its calls in their order, without the move of the model.

    Raises:
        OpListError: speed.yaml is damaged.
    """
    if not trace.complete or not calls:
        return ()
    return tuple(_workload(part) for part in _parts(trace, calls) if part.calls)


def _parts(trace: Trace, calls: Sequence[RoutedCall]) -> Iterator[_RepeatedPart]:
    """Yield the parts of a run; the part that repeats most comes first."""
    if trace.mode == "train":
        steady = [each for each in calls if not (each.call.phase == "optimizer" and each.call.op in _STATE)]
        yield _RepeatedPart("step", "a training step", steady)
        return
    generated = next((found for found in map(_GENERATE.match, trace.called) if found), None)
    if generated is not None and generated[1] != "1":
        forward = sum(name == "forward" for name in trace.called)
        starts = _starts(calls, forward + int(generated[1] or 0)) or _starts(calls)
        if starts:
            # The last pass is followed by the end of the run: the pass before it is whole, if it has the cache, too.
            whole = len(starts) - forward > 2
            first, end = (starts[-2], starts[-1]) if whole else (starts[-1], len(calls))
            yield _RepeatedPart("token", "a generated token, with the cache", calls[first:end])
            what = "a forward pass" if forward else "the prompt"
            yield _RepeatedPart("pass", what, calls[: starts[1]])
            return
    if trace.inputs_note == AS_PIPELINE:
        starts = _starts(calls)
        if starts:
            yield _RepeatedPart("step", "a step of the pipeline", calls[starts[0] : starts[1]])
            # The last round is as long as the round before.
            rest = [*calls[: starts[0]], *calls[2 * starts[-1] - starts[-2] :]]
            yield _RepeatedPart("pass", "what the pipeline does before and after its steps", rest)
            return
    yield _RepeatedPart("pass", "a forward pass", calls)


def _starts(calls: Sequence[RoutedCall], times: int = 0) -> list[int]:
    """Return where each round of the longest loop starts; empty: there is no such loop.

    A round starts with the first call of a module that is called once a round.

    Args:
        calls: in their order.
        times: the rounds; 0: two or more.
    """
    named = ((index, call) for index, (call, _, _) in enumerate(calls) if call.module)
    places = group_values(((call.op, call.module, str(call.location)), index) for index, call in named)
    loops = [each for each in places.values() if len(each) == times or (not times and each[1:])]
    # What repeats within a round has shorter distances; the earliest call starts the round.
    return max(
        loops,
        key=lambda each: (min((after - before for before, after in pairwise(each)), default=0), -each[0]),
        default=[],
    )


def _workload(part: _RepeatedPart) -> Workload:
    rows: Counter[CallWork] = Counter()
    waits: Counter[str] = Counter()
    views = copied = moved = raising = 0
    for each in part.calls:
        call, side = each.call, each.side
        if side == "raises":
            raising += 1
        elif is_view(call):
            views += 1
        else:
            rows[_work(call, each.route)] += 1
        if side == "cpu":
            tensors = [*copies(call)[0], *copies(call)[1]]
        else:
            tensors = [spec for spec in call.inputs if spec.device == "cpu" and spec.shape and spec.nbytes]
        if side == "cpu" or (side == "mps" and reason_to_wait(call)):
            waits[str(call.location or "")] += 1
        copied += len(tensors)
        moved += nbytes(tensors)
    return Workload(
        unit=part.unit,
        covers=part.covers,
        rows=tuple(msgspec.structs.replace(work, count=number) for work, number in rows.items()),
        views=views,
        waits=waits.total(),
        waits_at=next((where for where, _ in waits.most_common() if where), ""),
        copies=copied,
        copied=moved,
        raising=raising,
    )


def _work(call: OpCall, route: RouteKind) -> CallWork:
    family = _family(call.op, counted=bool(call.flops))
    flops = call.flops
    if family == "matrix" and not flops and call.inputs and call.outputs:
        flops = 2 * math.prod(call.inputs[0].shape) * (call.outputs[0].shape or (1,))[-1]
    # The calls in a composite's body that compute; their tensors have no identity.
    inner = sum(not is_bookkeeping(each.op) for each in call.inside)
    dtype, moved = call.inputs[0].dtype if call.inputs else "", _moved_bytes(call, family)
    return CallWork(family=family, route=route, dtype=dtype, flops=flops, nbytes=moved, launches=max(1, inner), count=1)


@functools.cache
def _family(op: str, *, counted: bool) -> str:
    """Return the family of an overload.

    Args:
        op: the overload.
        counted: PyTorch counts its FLOPs.
    """
    for pattern, family in SPEED.load().patterns:
        if pattern.fullmatch(op):
            return "matrix" if family == NONE and counted else family
    if counted:
        return "matrix"
    return "memory" if op.startswith("aten::") else NONE


def _moved_bytes(call: OpCall, family: str) -> int:
    """Return the bytes that a call reads and writes; what is expanded is read once, as is a tensor passed twice."""
    inputs = {spec.tensor: spec for spec in call.inputs}.values()
    if family in {"rows", "index"} and call.inputs:
        table = call.inputs[0].storage
        others = sum(_size(spec) for spec in inputs if spec.storage != table)
        # What is selected is read and written; what is written into a table comes from the others.
        results = sum(_size(spec) for spec in call.outputs if spec.storage != table)
        return others + 2 * results
    return sum(map(_size, inputs)) + sum(map(_size, call.outputs))


def _size(spec: TensorSpec) -> int:
    if 0 not in spec.stride:
        return spec.nbytes
    repeated = math.prod(size for size, step in zip(spec.shape, spec.stride, strict=False) if not step)
    return spec.nbytes // max(repeated, 1)
