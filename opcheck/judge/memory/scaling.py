"""Find the sizes of a run as functions of its inputs' dimensions, and make the trace of any other sizes.

Two runs whose dimensions differ by independent ratios give the form of each number of the trace: a product of powers of
the dimensions, or a straight line in a dimension.  What has neither form grows by the ratio of both runs.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec.structs import replace

from opcheck.common.errors import CaptureError
from opcheck.model.records import Lifetime, OpCall, TensorSpec, Trace

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
