"""Find the largest inputs that a run takes, and what ends it: memory, a limit of a shape, a wrong result.

The sizes of the run at any dimensions follow from two captures.  Their dimensions differ by independent ratios, which
gives the form of each number of the trace: a product of powers of the dimensions, or a straight line in a dimension.
What has neither form grows by the ratio of both runs.  Each boundary is then proved by a capture on both of its sides.
Starts no process: the orchestrator captures.
"""

import bisect
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.capture.dimensions import unknown_dimension
from opcheck.common.documents import brief
from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.text import filesize
from opcheck.common.versions import Target
from opcheck.common.vocabulary import LimitKind
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.judge.callgraph import routes_of
from opcheck.judge.memory.estimate import deciding, exceeds
from opcheck.model.records import Lifetime, MacFit, MemoryLimit, OpCall, Report, TensorSpec, Trace

_GRAMMAR = "write --vary batch=1..64, or height=512..2048:64 for steps of 64"
#: Steps that a height or a width has at most: what compresses pictures divides it.
_STEP = 64
#: Of a video's frames: models compress four into one, and keep the first.
_FRAMES_STEP = 4
_MOST = 10**9


class DimensionRange(NamedTuple):
    """The values of a dimension that are tried."""

    name: str
    least: int
    most: int
    step: int

    def floor(self, value: int) -> int:
        """Return the largest value of the range that is not above this value."""
        return self.least + (min(value, self.most) - self.least) // self.step * self.step


class LimitReason(NamedTuple):
    """What ends a run."""

    kind: LimitKind
    text: str


def parse_range(text: str) -> DimensionRange:
    """Read ``batch=1..64`` or ``height=512..2048:64``.

    Raises:
        UsageError: another form, or an empty range.
    """
    name, _, rest = text.partition("=")
    name, match = name.strip(), _RANGE.fullmatch(rest)
    if match is None or not name:
        raise UsageError(f"not a range: {brief(text)}", context="--vary", hint=_GRAMMAR)
    low, high, by = int(match[1]), int(match[2]), int(match[3] or 1)
    if not 0 < low < high <= _MOST or by < 1:
        message = f"the range {brief(rest)} is empty" if low >= high else f"no such range: {brief(rest)}"
        hint = f"it goes from at least 1 up to a larger number; {_GRAMMAR}"
        raise UsageError(message, context=f"--vary {brief(text)}", hint=hint)
    return DimensionRange(name, low, high, by if match[3] else _usual_step(name, low))


_NUMBER = r"\s*([0-9]{1,10})\s*"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?::(?:{_NUMBER})?)?")


def _usual_step(name: str, least: int) -> int:
    if name in {"height", "width"}:
        return min(least & -least, _STEP)
    return _FRAMES_STEP if name == "frames" else 1


def reason(report: Report, base: Report) -> LimitReason | None:
    """Return what ends the run of a report; None: it comes to its end as the base does."""
    if not report.capture.complete:
        problem = report.problems[-1].message if report.problems else "the run broke off"
        return LimitReason("raises", problem)
    mac = deciding(report.memory) if report.memory else None
    before = {(group.op, group.because) for group in base.groups if group.status == "unsupported"}
    for group in report.groups:
        if group.status == "unsupported" and (group.op, group.because) not in before:
            return LimitReason("shape", f"{group.op}: {group.because}")
    old = {each.message.partition(":")[0] for each in base.findings if each.rule == "OC131"}
    for finding in report.findings:
        if finding.rule == "OC131" and finding.message.partition(":")[0] not in old:
            return LimitReason("shape", finding.message)
    if mac is not None and mac.state == "raises":
        return LimitReason("memory", _memory_text(mac))
    known = {name for wrong in base.wrong if wrong.frequency == "always" for name in wrong.ids}
    for wrong in report.wrong:
        if wrong.frequency == "always" and not known.issuperset(wrong.ids):
            return LimitReason("wrong", f"{wrong.op}: wrong results ({', '.join(wrong.ids)})")
    return None


def _memory_text(mac: MacFit) -> str:
    text = f"MPS allocated {filesize(mac.allocated)}, other {filesize(mac.other)}, max allowed {filesize(mac.limit)}"
    if mac.prints.startswith("Invalid buffer"):
        text = mac.prints.lower()
    return f"memory on a Mac of {mac.memory} GB: {text}"


def table_end(trace: Trace) -> LimitReason | None:
    """Return which table of positions the run reads beyond its end, as a text longer than the model takes does."""
    counted: set[int] = set()
    for call in trace.calls:
        tensors = [spec for spec in call.inputs if spec.device == "mps"]
        if call.op.startswith("aten::arange"):
            counted.update(spec.storage for spec in call.outputs)
        elif tensors and all(spec.storage in counted or not spec.shape for spec in tensors):
            counted.update(spec.storage for spec in call.outputs if "int" in spec.dtype)
        elif call.op == "aten::embedding" and len(tensors) == 2:
            weight, indices = tensors
            if indices.storage in counted and indices.shape[-1] > weight.shape[0]:
                text = f"a table of {weight.shape[0]:,} positions (aten::embedding {call.location})"
                return LimitReason("shape", text)
    return None


# -- the sizes of a run as functions of its dimensions --

#: What the dimensions of the second run are multiplied by: no product of powers of some equals another, and what
#: divides the first size divides the second as a rule.  The model takes a shorter text, too.
_RATIOS = {"batch": Fraction(5), "length": Fraction(3, 4), "height": Fraction(2), "width": Fraction(3)}
_OTHER_RATIOS = (Fraction(7), Fraction(11), Fraction(13), Fraction(17))
#: Of a video's frames: models compress four into first, and keep the first.
_MORE_FRAMES = 16
#: Denominators of slopes: what a layer divides a dimension by.
_DIVISORS = (1, 2, 4, 8, 16)
#: The highest power of a dimension in a size: attention over a picture has its height and its width twice each.
_POWER = 2
#: Dimensions that a size may depend on at once by powers.
_FACTORS = 3

Sizes = Mapping[str, int]
_Form = Callable[[Sizes], int]
_Line = Callable[[Sizes], Fraction]


def second_sizes(first: Sizes, varied: Sequence[str]) -> dict[str, int]:
    """Return the sizes of the run that gives the forms of the varied dimensions."""
    others = iter(_OTHER_RATIOS)
    result = {}
    for name in varied:
        if name == "frames":
            result[name] = first[name] + _MORE_FRAMES
            continue
        ratio = _RATIOS.get(name) or next(others, Fraction(3))
        size = first[name] * ratio
        result[name] = int(size) if size.denominator == 1 else first[name] * 7
    return result


class ScaledRun:
    """A run whose sizes follow its dimensions.

    Args:
        first: the trace of first run.
        second: the trace of the same calls with other sizes.
        at: the sizes of the first.
        other: the sizes of the second.
    """

    def __init__(self, first: Trace, second: Trace, at: Sizes, other: Sizes) -> None:
        self.first, self._second = first, second
        self.at = at
        self._other = other
        self._varied = [name for name in at if at[name] != other[name]]
        self._form = functools.cache(self._find_form)
        self._tensors = self._find_tensors()
        #: whether some number has no exact form
        self.is_rough = False

    @property
    def has_same_calls(self) -> bool:
        """Return whether both runs make the same calls, so that each number has a counterpart."""
        runs = (self.first, self._second)
        first, second = (([call.op for call in each.calls], len(each.lifetimes)) for each in runs)
        return all(each.complete for each in runs) and first == second

    def trace(self, sizes: Sizes) -> Trace:
        """Return the trace for these sizes."""

        @functools.cache
        def scale(first: int, second: int) -> int:
            return first if first == second else max(self._form(first, second)(sizes), 0)

        pairs = zip(self.first.calls, self._second.calls, strict=True)
        calls = tuple(_call(*pair, scale) for pair in pairs)
        lives = zip(self.first.lifetimes, self._second.lifetimes, strict=True)
        return replace(
            self.first,
            calls=calls,
            lifetimes=tuple(_life(*pair, scale, self._tensor(pair[0], calls)) for pair in lives),
            sizes={**self.first.sizes, **sizes},
        )

    def _tensor(self, life: Lifetime, calls: Sequence[OpCall]) -> TensorSpec | None:
        """Return a tensor of the new run that fills a memory; None: there is none that does."""
        place = self._tensors.get(life.storage)
        return None if place is None else _specs_of(calls[place[0]])[place[1]]

    def _find_tensors(self) -> dict[int, tuple[int, int]]:
        """Return for each memory the call and the place of a tensor that fills it in both runs."""
        sizes = [{life.storage: life.nbytes for life in trace.lifetimes} for trace in (self.first, self._second)]
        places: dict[int, tuple[int, int]] = {}
        for index, calls in enumerate(zip(self.first.calls, self._second.calls, strict=False)):
            for place, specs in enumerate(zip(*map(_specs_of, calls), strict=False)):
                if all(of.get(spec.storage) == spec.nbytes for of, spec in zip(sizes, specs, strict=True)):
                    places.setdefault(specs[0].storage, (index, place))
        return places

    def _find_form(self, first: int, second: int) -> _Form:
        """Return the function of the dimensions that is ``first`` in the first run and ``second`` in the second."""
        for powers in self._powers():
            ratio = math.prod(self._ratio(name) ** power for name, power in powers.items())
            if first and first * ratio == second:
                return self._times(lambda _: Fraction(first), powers)
        for powers in self._powers():
            others = math.prod(self._ratio(each) ** power for each, power in powers.items())
            for name in (each for each in self._varied if each not in powers):
                line = self._line(Fraction(first), Fraction(second) / others, name)
                if line is not None:
                    return self._times(line, powers)
        self.is_rough = True
        return self._by_ratio(first, second)

    def _powers(self) -> Iterator[dict[str, int]]:
        """Yield the powers of the dimensions, those of the lowest degree first."""
        choices = itertools.product(range(_POWER + 1), repeat=len(self._varied))
        for powers in sorted(choices, key=sum):
            if sum(power > 0 for power in powers) <= _FACTORS:
                yield {n: p for n, p in zip(self._varied, powers, strict=True) if p}

    def _ratio(self, name: str) -> Fraction:
        return Fraction(self._other[name], self.at[name])

    def _line(self, first: Fraction, second: Fraction, name: str) -> _Line | None:
        """Return a + b * size, where b is a whole number, or half, a quarter ... of it; None: there is none."""
        slope = (second - first) / (self._other[name] - self.at[name])
        if slope.denominator not in _DIVISORS or slope <= 0:
            return None
        return lambda sizes: first + slope * (sizes[name] - self.at[name])

    def _times(self, line: _Line, powers: Mapping[str, int]) -> _Form:
        def form(sizes: Sizes) -> int:
            factors = (Fraction(sizes[n], self.at[n]) ** power for n, power in powers.items())
            return int(line(sizes) * math.prod(factors))

        return form

    def _by_ratio(self, first: int, second: int) -> _Form:
        """Return growth by the ratio of both runs, over the product of the dimensions."""
        steps = math.prod(self._ratio(name) for name in self._varied)
        power = math.log(max(second, 1) / max(first, 1)) / math.log(steps)

        def form(sizes: Sizes) -> int:
            grown = math.prod(sizes[name] / self.at[name] for name in self._varied)
            return int(first * grown**power)

        return form


def scale_run(first: Trace, varied: Sequence[str], capture: Callable[[dict[str, int]], list[Trace]]) -> ScaledRun:
    """Return the run at any sizes of the varied dimensions, by a second capture.

    Raises:
        CaptureError: the model makes other calls with other sizes.
    """
    at = {name: first.sizes[name] for name in varied}
    other = second_sizes(at, varied)
    (second,) = capture(other)
    run = ScaledRun(first, second, at, other)
    if not run.has_same_calls:
        raise _other_calls(first, second, other)
    return run


def _other_calls(first: Trace, second: Trace, sizes: Mapping[str, int]) -> CaptureError:
    """Return the error for a model that makes other calls with other sizes."""
    text = ", ".join(f"{name}={size}" for name, size in sizes.items())
    broken = next((each for each in (first, second) if not each.complete), None)
    if broken is not None:
        why = broken.problems[-1].message if broken.problems else "the run broke off"
        message = f"the model does not run with {text if broken is second else 'its usual inputs'}: {why}"
    else:
        message = f"the model makes {len(second.calls):,} calls with {text} and {len(first.calls):,} as it is"
    hint = "the sizes of its calls do not follow from the dimension; audit each size: --input"
    return CaptureError(message, context="--vary", hint=hint)


def _call(first: OpCall, second: OpCall, scale: Callable[[int, int], int]) -> OpCall:
    inputs = _specs(first.inputs, second.inputs, scale)
    outputs = _specs(first.outputs, second.outputs, scale)
    if inputs is first.inputs and outputs is first.outputs:
        return first
    return replace(first, inputs=inputs, outputs=outputs)


def _specs(
    first: tuple[TensorSpec, ...], second: tuple[TensorSpec, ...], scale: Callable[[int, int], int]
) -> tuple[TensorSpec, ...]:
    pairs = list(zip(first, second, strict=False))
    if all(first.shape == second.shape and first.stride == second.stride for first, second in pairs):
        return first

    def scaled(one: TensorSpec, other: TensorSpec) -> TensorSpec:
        shape, stride = tuple(map(scale, one.shape, other.shape)), tuple(map(scale, one.stride, other.stride))
        return replace(one, shape=shape, stride=stride, offset=scale(one.offset, other.offset))

    return tuple(scaled(*pair) for pair in pairs)


def _specs_of(call: OpCall) -> tuple[TensorSpec, ...]:
    return (*call.outputs, *call.inputs)


def _life(first: Lifetime, second: Lifetime, scale: Callable[[int, int], int], tensor: TensorSpec | None) -> Lifetime:
    if first.nbytes == second.nbytes:
        return first
    if tensor is not None:
        return replace(first, nbytes=tensor.nbytes)
    return replace(first, nbytes=scale(first.nbytes, second.nbytes))


# -- the boundaries --


class DimensionBoundary(NamedTuple):
    """The largest size of one dimension that runs, by the computed sizes; ``reason`` ends the next value."""

    range: DimensionRange
    largest: int
    reason: LimitReason | None


def find_boundary(
    dimension: DimensionRange, is_too_large: Callable[[int], bool], why: Callable[[int], LimitReason | None]
) -> DimensionBoundary:
    """Find the largest value of a range that runs.

    Args:
        dimension: the range.
        is_too_large: whether the memory ends the run at a value; quick.
        why: what ends the run at a value, all rules applied; slow.
    """
    top = _last(dimension, is_too_large)
    if (ends := why(top)) is not None:
        top = _last(dimension, lambda value: value >= top or why(value) is not None)
        following = min(top + dimension.step, dimension.floor(dimension.most))
        ends = why(following) or ends
    elif top < dimension.floor(dimension.most):
        ends = why(top + dimension.step)
    return DimensionBoundary(dimension, top, ends)


def _last(dimension: DimensionRange, ends: Callable[[int], bool]) -> int:
    """Return the last value that does not end, by bisection; the least where even that ends."""
    sizes = range(dimension.least, dimension.most + 1, dimension.step)
    if not ends(sizes[-1]):
        return sizes[-1]
    return sizes[bisect.bisect_left(sizes, 1, lo=1, hi=len(sizes) - 1, key=lambda size: int(ends(size))) - 1]


def neighbours(boundary: DimensionBoundary) -> Iterator[int]:
    """Yield the sizes whose captures prove a boundary: the largest, and the next one inside the range."""
    yield boundary.largest
    if boundary.largest + boundary.range.step <= boundary.range.most:
        yield boundary.largest + boundary.range.step


class LimitSearch:
    """Finds the boundaries of a model's dimensions.

    Args:
        run: the sizes of the run as functions of the dimensions.
        base: the report of its first trace.
        target: that of the report.
        lists: the op lists.
        ranges: the dimensions.
        mac: GB of the Mac that decides; 0: the smallest Mac that has enough for the base.
    """

    def __init__(
        self, run: ScaledRun, base: Report, target: Target, lists: OpLists, ranges: Sequence[DimensionRange], mac: int
    ) -> None:
        self._run, self._base, self._target, self._lists, self._ranges = run, base, target, lists, ranges
        self._memory = mac or _smallest(base)
        self._routes = routes_of(run.first.calls, target, lists)
        #: dimension -> the sizes of the others, where they are not the usual ones
        self._at_most: dict[str, dict[str, int]] = {}
        self._traces: dict[tuple[tuple[str, int], ...], Trace] = {}

    def others(self, dimension: DimensionRange) -> dict[str, int]:
        """Return the sizes of the other dimensions: the usual ones, within their ranges."""
        return self._at_most.get(dimension.name) or {
            each.name: each.floor(max(self._run.at[each.name], each.least))
            for each in self._ranges
            if each != dimension
        }

    def boundary(self, dimension: DimensionRange) -> DimensionBoundary:
        """Return the boundary of one dimension by the computed sizes."""
        return find_boundary(
            dimension,
            lambda size: self._is_too_large(dimension, size, self._memory),
            lambda size: self.reason_of(self._trace(dimension, size)),
        )

    def reason_of(self, trace: Trace) -> LimitReason | None:
        """Return what ends a run, captured or computed; None: it comes to its end."""
        if trace.complete and (end := table_end(trace)):
            return end
        judged = report(trace, self._target, self._lists, mac=self._memory)
        return reason(judged, self._base)

    def record_proved(
        self, boundary: DimensionBoundary, ends: Iterable[tuple[Mapping[str, int], LimitReason | None]]
    ) -> MemoryLimit:
        """Return the record of a boundary with the captures on both of its sides.

        Args:
            boundary: by the computed sizes.
            ends: what ended the captures, by all sizes of each.
        """
        others = self.others(boundary.range)
        at = {sizes[boundary.range.name]: end for sizes, end in ends if others.items() <= sizes.items()}
        return _record(boundary, at, others, self._memory)

    def at_most(self, boundaries: Sequence[DimensionBoundary]) -> Iterator[MemoryLimit]:
        """Yield the limit of each dimension while the others are the largest that run; no capture proves it."""
        for dimension, *_ in boundaries if len(boundaries) > 1 else ():
            others = {each.range.name: each.largest for each in boundaries}
            others.pop(dimension.name)
            self._at_most = {dimension.name: others}
            yield _record(self.boundary(dimension), {}, others, self._memory)
        self._at_most = {}

    def compute(self, dimension: DimensionRange, memory: int) -> MemoryLimit:
        """Return the limit that the memory of another Mac sets, which no capture proves."""
        top = _last(dimension, lambda size: self._is_too_large(dimension, size, memory))
        ends = None
        if top < dimension.floor(dimension.most):
            ends = LimitReason("memory", f"memory on a Mac of {memory} GB")
        return _record(DimensionBoundary(dimension, top, ends), {}, self.others(dimension), memory)

    def _trace(self, dimension: DimensionRange, size: int) -> Trace:
        sizes = {**self.others(dimension), dimension.name: size}
        key = tuple(sorted(sizes.items()))
        if key not in self._traces:
            self._traces[key] = self._run.trace(sizes)
        return self._traces[key]

    def _is_too_large(self, dimension: DimensionRange, size: int, memory: int) -> bool:
        return exceeds(self._trace(dimension, size), self._target, memory, self._routes)


def _smallest(base: Report) -> int:
    """Return the memory of the smallest Mac that runs the base; that of the largest if none does."""
    macs = base.memory.macs if base.memory else ()
    running = [mac.memory for mac in macs if mac.state != "raises"]
    return running[0] if running else macs[-1].memory if macs else 0


def _record(
    boundary: DimensionBoundary, proofs: Mapping[int, LimitReason | None], others: Mapping[str, int], memory: int
) -> MemoryLimit:
    """Return the record of a boundary; a capture overrides what was computed."""
    dimension, largest, ends = boundary
    at, beyond = proofs.get(largest), proofs.get(largest + dimension.step)
    has_next = largest + dimension.step <= dimension.most
    proved = largest in proofs and at is None and (beyond is not None or not has_next)
    ends = at or beyond or ends
    if at is not None and largest == dimension.least:
        # Not even the least size runs, which its capture proves.
        largest, proved = 0, True
    return MemoryLimit(
        dimension=dimension.name,
        range=f"{dimension.least}..{dimension.most}",
        largest=largest,
        kind=ends.kind if ends else "range",
        ends=ends.text if ends else f"nothing up to {dimension.most:,}, where the range ends",
        memory=memory,
        others=dict(others),
        proved=proved,
    )


def check_names(ranges: Sequence[DimensionRange], sizes: Mapping[str, int]) -> None:
    """Refuse a dimension that the inputs do not have, or that is named twice.

    Raises:
        UsageError: a dimension is wrong.
    """
    names = [each.name for each in ranges]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the dimension {name!r} has two ranges", context="--vary", hint="give it one range")
        if name not in sizes:
            raise unknown_dimension(name, sizes)
