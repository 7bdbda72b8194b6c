"""The memory of a run: more than the GPU of a Mac gives, or a tensor beyond what MPSGraph can describe."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from opcheck.capture.dimensions import dimensions
from opcheck.common.text import and_more, any_layer, filesize
from opcheck.common.versions import Span, Target
from opcheck.common.vocabulary import GrowthKind
from opcheck.data.strict_yaml import read_as
from opcheck.judge.callgraph import is_view, route_of
from opcheck.judge.memory.estimate import deciding, smallest
from opcheck.judge.memory.replay import never_written
from opcheck.judge.rules.rule import Audited, audit_rule, finding, sentences
from opcheck.judge.texts import COMPUTED
from opcheck.model.records import Finding, GroupLocation, MacFit, Memory, MemoryGrowth, OpCall, Record, TensorSpec

# -- OC130: the run takes more memory than the GPU of a Mac gives ----------------------------------


@audit_rule("OC130", "error")
def find_excess_memory(audited: Audited) -> Iterator[Finding]:
    """Yield one finding about the Mac that the user named, or one if no Mac has enough memory."""
    memory = audited.memory
    if memory is None:
        return
    mac = deciding(memory)
    if mac is not None and mac.state != "fits":
        yield _report_memory(memory, mac)


def _report_memory(memory: Memory, mac: MacFit) -> Finding:
    raises = mac.state == "raises"
    if not raises:
        why = f"Metal recommends {filesize(mac.working_set)}: it may swap and slow down"
    elif mac.prints.startswith("Invalid buffer"):
        why = "a tensor takes more than one buffer may"
    else:
        why = f"PyTorch raises above {filesize(mac.limit)}"
    enough = smallest(memory, "fits")
    larger = f"a Mac of {enough.memory} GB" if enough else f"as it is, no Mac up to {memory.macs[-1].memory} GB"
    return finding(
        severity="error" if raises else "warning",
        message=f"an estimated {filesize(memory.peak.total)} on a Mac of {mac.memory} GB: {why}",
        hint=sentences(*memory.advice, f"{larger} would do"),
        prints=mac.prints,
        locations=(mac.place,) if mac.place else (),
    )


# -- OC132: memory grows with each new shape, or with each step ------------------------------------


@audit_rule("OC132", "warning")
def find_growing_memory(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for the graphs that new shapes add, and another for the tensors that a program keeps.

    The shapes of a program that ran are known.  Of a model whose run does not vary them, the finding is a note, and
    only where an input has a length, which programs vary as a rule.
    """
    growth = audited.memory.growth if audited.memory else ()
    for kind in get_args(GrowthKind):
        entries = [each for each in growth if each.kind == kind]
        varied = [each for each in entries if each.seen]
        if varied or (entries and "length" in dimensions(audited.trace.inputs)):
            yield _report_growth(varied or entries, kind, is_seen=bool(varied))


def _report_growth(entries: Sequence[MemoryGrowth], kind: GrowthKind, *, is_seen: bool) -> Finding:
    operators = list(dict.fromkeys(op for each in entries for op in each.operators))
    total = sum(each.megabytes for each in entries)
    names = and_more(operators, _OPERATORS)
    if kind == "tensors":
        steps = max(each.seen for each in entries)
        message = f"{names}: results of {steps} steps exist at once, {total:.3g} MB more with each step"
    elif kind == "buffers":
        sizes = max(each.seen for each in entries)
        message = f"{names}: results of {sizes} sizes, whose freed buffers stay cached, {total:.3g} MB with each size"
    else:
        graphs, seen = sum(each.graphs for each in entries), sum(each.seen for each in entries)
        start = f"where the length varies, {names} compile graphs"
        start = f"the shapes vary: {seen} graphs for {names} so far" if is_seen else start
        message = f"{start}; each new shape adds {graphs} to a cache without limit, at least {total:.3g} MB"
    return finding(
        severity="warning" if is_seen else "note",
        message=message,
        hint=entries[0].cure,
        op=operators[0] if len(operators) == 1 else "",
        locations=tuple(GroupLocation(line=each.line) for each in entries),
        count=sum(each.seen or each.graphs for each in entries),
    )


# -- OC131: a tensor beyond what MPSGraph can describe, in a call that no statement of the op lists covers --

#: Operators that a finding names.
_OPERATORS = 3


_MEASURES: dict[str, Callable[[TensorSpec], int]] = {
    "dimension": lambda spec: max(spec.shape),
    "bytes": lambda spec: spec.nbytes,
    "elements": lambda spec: math.prod(spec.shape),
}


class _Limit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an MPSNDArray cannot be, and what comes of it on some versions of macOS."""

    name: str
    #: a key of _MEASURES, and the most of it
    measure: str
    above: int
    effect: str
    macos: Span
    #: what the program ends with, by release
    prints: tuple[tuple[Span, str], ...] = ()

    def is_passed_by(self, spec: TensorSpec) -> bool:
        """Return whether a tensor is beyond the limit."""
        return spec.device == "mps" and bool(spec.shape) and _MEASURES[self.measure](spec) > self.above


_LIMITS = read_as(Path(__file__).with_name("tensor_limits.yaml"), tuple[_Limit, ...])


@audit_rule("OC131", "warning")
def find_large_tensors(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for all calls that take or make a tensor beyond a limit."""
    unwritten = never_written(audited.trace, audited.target)
    limits = [limit for limit in _LIMITS if audited.target.macos in limit.macos]
    beyond: dict[tuple[_Limit, str], list[tuple[OpCall, TensorSpec]]] = {}
    for call, verdict in zip(audited.trace.calls, audited.verdicts, strict=True):
        if verdict.status != "native" or verdict.limitations or is_view(call):
            continue
        specs = [each for each in (*call.inputs, *call.outputs) if each.storage not in unwritten]
        largest = max(specs, key=lambda spec: spec.nbytes, default=None)
        limit = next((limit for limit in limits if any(map(limit.is_passed_by, specs))), None)
        # A statement on wrong values says more of them.
        if limit is None or largest is None or (verdict.advisories and not limit.prints):
            continue
        computed = COMPUTED.get(route_of(call, verdict, audited.target, audited.lists))
        if computed:
            beyond.setdefault((limit, f"{computed} {limit.effect}"), []).append((call, largest))
    for (limit, effect), calls in beyond.items():
        yield _report_tensors(audited.target, limit, effect, calls)


def _report_tensors(target: Target, limit: _Limit, effect: str, calls: list[tuple[OpCall, TensorSpec]]) -> Finding:
    ops = sorted({call.op for call, _ in calls})
    largest = max((spec for _, spec in calls), key=lambda spec: spec.nbytes)
    places = Counter((call.location, any_layer(call.module), call.phase) for call, _ in calls)
    return finding(
        message=f"{and_more(ops, _OPERATORS)}: {largest} has {limit.name}; {effect}",
        hint="split the tensor: a smaller batch, chunks along its largest dimension",
        op=ops[0] if len(ops) == 1 else "",
        prints=next((text for span, text in limit.prints if target.torch in span), ""),
        locations=tuple(GroupLocation.at(at, module=m, phase=p, count=n) for (at, m, p), n in places.items()),
        count=len(calls),
    )
