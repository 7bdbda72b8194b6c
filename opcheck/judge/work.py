"""Count how much of a run each side does, and find the calls where the CPU waits for the GPU."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import get_args

from opcheck.common.text import any_layer
from opcheck.common.versions import Target
from opcheck.common.vocabulary import ROUTES, Phase, RouteKind, Side
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists
from opcheck.judge.judge import outcome
from opcheck.model.records import (
    GroupLocation,
    OpCall,
    RouteWork,
    SideWork,
    SourceLocation,
    Synchronization,
    Verdict,
)


def work(calls: Sequence[OpCall], verdicts: Sequence[Verdict]) -> Iterator[SideWork]:
    """Yield what the calls of each side do, for each side that has any."""
    pairs = [(call, outcome(verdict).side) for call, verdict in zip(calls, verdicts, strict=True)]
    for side in get_args(Side):
        if members := [call for call, its_side in pairs if its_side == side]:
            yield SideWork(
                side=side,
                calls=len(members),
                flops=sum(call.flops for call in members),
                nbytes=sum(map(_bytes, members)),
            )


def route_of(call: OpCall, verdict: Verdict, target: Target, lists: OpLists) -> RouteKind:
    """Return what computes a call.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    side = outcome(verdict).side
    if side != "mps":
        return "cpu" if side == "cpu" else "unknown"
    return "view" if is_view(call) else routes(lists).of_call(call, target)


def common_route(kinds: Collection[RouteKind]) -> RouteKind:
    """Return the route of all calls of a group; those that make views do not count."""
    counted = set(kinds) - {"view"} or set(kinds)
    return next(iter(counted)) if len(counted) == 1 else "either"


def sum_by_route(rows: Iterable[tuple[RouteKind, int, int]]) -> tuple[RouteWork, ...]:
    """Return the work by route, from pairs of a route with a number of calls and of FLOPs."""
    calls, flops = Counter[RouteKind](), Counter[RouteKind]()
    for route, number, amount in rows:
        calls[route] += number
        flops[route] += amount
    return tuple(
        RouteWork(route=route, calls=calls[route], flops=flops[route])
        for route in ROUTES
        if calls[route]
    )


def is_view(call: OpCall) -> bool:
    """Return whether the results are views of the inputs, and no kernel runs."""
    inputs = {spec.storage for spec in call.inputs}
    views = bool(call.outputs) and all(spec.storage in inputs for spec in call.outputs)
    return views and not any(spec.written for spec in call.inputs)


def _bytes(call: OpCall) -> int:
    """Return the bytes that a call reads and writes; a view of its input touches none of them."""
    return 0 if is_view(call) else sum(spec.nbytes for spec in (*call.inputs, *call.outputs))


def synchronizations(
    calls: Sequence[OpCall], verdicts: Sequence[Verdict]
) -> Iterator[Synchronization]:
    """Yield the lines where the CPU waits for the GPU, in the order of the run.

    A CPU fallback waits as well; the transfers of the partition count those.
    """
    places: Counter[tuple[str, str, SourceLocation | None, str, Phase]] = Counter()
    for call, verdict in zip(calls, verdicts, strict=True):
        why = (
            reason_to_wait(call) if outcome(verdict).side == "mps" and call.phase != "move" else ""
        )
        if why:
            places[call.op, why, call.location, any_layer(call.module), call.phase] += 1
    for (op, why, location, module, phase), count in places.items():
        place = GroupLocation.at(location, module=module, phase=phase, count=count)
        yield Synchronization(op=op, why=why, place=place)


def reason_to_wait(call: OpCall) -> str:
    """Return what the CPU waits for; empty if it does not."""
    if not any(spec.device == "mps" for spec in call.inputs):
        return ""
    if call.waits:
        return "a shape" if any(spec.device == "mps" for spec in call.outputs) else "a value"
    written = [spec for spec in call.inputs if spec.written]
    copied = any(spec.device == "cpu" for spec in (*call.outputs, *written))
    return "a copy to the CPU" if copied and not _is_only_queued(call) else ""


def _is_only_queued(call: OpCall) -> bool:
    """Return whether the copy is queued, and the CPU continues: native/mps/operations/Copy.mm, copy_from_mps_.

    Not every release queues a copy that changes the dtype.
    """
    dtypes = {spec.dtype for spec in (*call.inputs, *call.outputs)}
    return call.arguments.get("non_blocking") is True and len(dtypes) == 1
