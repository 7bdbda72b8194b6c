"""A prediction held against an observation: agreements, contradictions, what one of them has not seen.

Both are reports: of an audit, of a run, or of logs.  Calls are matched by operator, then by line where both tell it,
and by dtype where both tell that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from opcheck.common.errors import UsageError
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_events import CONFIDENCE, NOT_NAMED
from opcheck.device.observe.reported_calls import ReportedCalls, calls_of
from opcheck.model.records import Record, Report

#: What a prediction can claim of a call.
STATUSES = ("native", "fallback", "unsupported")


class Pair(Record, frozen=True, kw_only=True):
    """One thing that both sides speak of."""

    op: str
    line: str
    dtypes: tuple[str, ...]
    predicted: str
    observed: str
    #: calls that were observed
    count: int
    because: str
    seen: str
    prints: str = ""
    limitations: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether both say the same; an unknown prediction claims nothing and contradicts nothing."""
        return self.predicted == self.observed


class Verification(Record, frozen=True, kw_only=True):
    """All of a comparison."""

    prediction: str
    observation: str
    torch: str
    macos: str
    machine: str
    build: str
    pairs: tuple[Pair, ...]
    #: predicted, and not in the observation
    unseen: tuple[ReportedCalls, ...]
    #: observed, and not in the prediction
    unforeseen: tuple[ReportedCalls, ...]
    notes: tuple[str, ...] = ()

    @property
    def contradictions(self) -> tuple[Pair, ...]:
        """Where the prediction claims something and the Mac did something else."""
        return tuple(pair for pair in self.pairs if not pair.agrees and pair.predicted != "unknown")

    @property
    def agreements(self) -> tuple[Pair, ...]:
        """Where both say the same."""
        return tuple(pair for pair in self.pairs if pair.agrees)

    def rates(self) -> Iterator[tuple[str, int, int, int]]:
        """Of each status: pairs in which both say so, in which the prediction does, in which the observation does."""
        judged = [pair for pair in self.pairs if pair.predicted != "unknown"]
        both = Counter(one.observed for one in judged if one.agrees)
        predicted = Counter(one.predicted for one in judged)
        observed = Counter(one.observed for one in judged)
        for status in STATUSES:
            if predicted[status] or observed[status]:
                yield status, both[status], predicted[status], observed[status]


def ratio(part: int, whole: int) -> str:
    """Three digits; a dash where there is nothing to divide by."""
    return f"{part / whole:.3f}" if whole else "-"


def verify(prediction: Report, observation: Report, lists: OpLists) -> Verification:
    """Hold one report against the other.

    Args:
        prediction: of ``opcheck audit`` or of an emulated run.
        observation: of ``opcheck run`` on a Mac, or of ``opcheck observe``.
        lists: the op lists, which know what an operator forwards to.

    Raises:
        UsageError: the prediction is an observation itself, or there is nothing observed in the other one.
        OpListError: the lists hold no such release.
    """
    expected, seen = calls_of(prediction), calls_of(observation)
    if not any(calls.confidence == CONFIDENCE for calls in seen):
        raise UsageError(
            "nothing in the second report was observed",
            context=observation.model,
            hint="opcheck verify PREDICTION OBSERVATION: the report of an audit, then that of a run on a Mac "
            "or of opcheck observe",
        )
    notes = tuple(_notes(prediction, observation))
    index = _Index(expected, prediction.target.torch, lists)
    pairs: list[Pair] = []
    numbers: set[int] = set()
    unforeseen = []
    for one in seen:
        alike = index.alike(one)
        here = [i for i in alike if _same_line(one.line, expected[i].line)]
        # A log, or a wrapper, may name another line than the audit does: the operator alone then.
        chosen = here or (alike if not (one.line and any(expected[i].line for i in alike)) else [])
        typed = [i for i in chosen if _same_dtypes(one, expected[i])] or chosen
        if not typed:
            unforeseen.append(one)
            continue
        best = min(typed, key=lambda i: (expected[i].status != one.status, i))
        numbers.update(typed)
        pairs.append(_pair(one, expected[best]))
    unseen = tuple(one for i, one in enumerate(expected) if i not in numbers)
    return Verification(
        prediction=prediction.model,
        observation=observation.model,
        torch=observation.target.torch,
        macos=observation.target.macos,
        machine=observation.capture.packages.get("machine", ""),
        build=observation.capture.packages.get("macos build", ""),
        pairs=tuple(pairs),
        unseen=unseen,
        unforeseen=tuple(unforeseen),
        notes=notes,
    )


def _pair(seen: ReportedCalls, expected: ReportedCalls) -> Pair:
    return Pair(
        op=seen.op if seen.op != NOT_NAMED else expected.op,
        line=seen.line or expected.line,
        dtypes=seen.dtypes or expected.dtypes,
        predicted=expected.status,
        observed=seen.status,
        count=seen.count,
        because=expected.because,
        seen=seen.because,
        prints=seen.prints,
        limitations=seen.limitations or expected.limitations,
    )


class _Index:
    """The predicted places by every name that an observation may have for their operator."""

    def __init__(self, expected: Sequence[ReportedCalls], line: str, lists: OpLists) -> None:
        self._line = line
        self._lists = lists
        self._by_name: dict[str, list[int]] = {}
        self._by_statement: dict[str, list[int]] = {}
        for number, place in enumerate(expected):
            names = {place.op, self._last(place.op), *([place.named] if place.named else [])}
            # The profiler leaves the overload out.
            for name in names | {name.partition(".")[0] for name in names}:
                self._by_name.setdefault(name, []).append(number)
            for statement in place.limitations:
                self._by_statement.setdefault(statement, []).append(number)

    def _last(self, op: str) -> str:
        """What it forwards to in the end: functional forms and their ``.out`` are one."""
        return self._lists.resolve(op, self._line).chain[-1]

    def alike(self, seen: ReportedCalls) -> list[int]:
        """The places of the same operator, in their order."""
        if seen.op == NOT_NAMED:
            # What was printed names no operator: the statement that it is of does.
            numbers = [n for name in seen.limitations for n in self._by_statement.get(name, ())]
        else:
            numbers = [
                n for name in (seen.op, self._last(seen.op)) for n in self._by_name.get(name, ())
            ]
        return sorted(set(numbers))


def _same_line(one: str, other: str) -> bool:
    """Whether two paths with a line are one, as far as the shorter goes."""
    if not one or not other:
        return False
    first, second = one.replace("\\", "/").split("/"), other.replace("\\", "/").split("/")
    shared = min(len(first), len(second))
    return first[-shared:] == second[-shared:]


def _same_dtypes(seen: ReportedCalls, expected: ReportedCalls) -> bool:
    return not seen.dtypes or not expected.dtypes or bool(set(seen.dtypes) & set(expected.dtypes))


def _notes(prediction: Report, observation: Report) -> Iterator[str]:
    for what in ("torch", "macos", "cpu_fallback"):
        one, other = getattr(prediction.target, what), getattr(observation.target, what)
        if one != other:
            yield f"the targets differ in {what}: predicted for {one}, observed on {other}"
    if not prediction.capture.complete:
        yield "the prediction broke off before its end: what follows it could not foresee"
    if not observation.capture.complete:
        yield "the observed run did not come to its end: what follows it was not seen"
    if observation.capture.tracer == "log":
        yield "the observation is of logs: a call that printed nothing is not in it"
    if observation.capture.tracer == "stand-in":
        yield "the observation is of an emulated Mac: it tests opcheck, and says nothing of a Mac"
