"""Compares a prediction with an observation: agreements, contradictions, and calls of a single report.

Both are reports: of an audit, of a run, or of logs. Calls are matched by operator, then by line and
by dtypes where both reports have them.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml

from opcheck.common.errors import UsageError
from opcheck.common.text import plural
from opcheck.common.versions import Version
from opcheck.common.vocabulary import Confidence, FallbackKind, Status
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_parsing import CONFIDENCE, NOT_NAMED
from opcheck.model.records import CallGroup, Record, Report

#: What a prediction can claim of a call.
STATUSES: tuple[Status, ...] = ("native", "fallback", "unsupported")


class ReportedCalls(Record, frozen=True, kw_only=True):
    """The calls of an operator from one line, with one verdict."""

    op: str
    #: the overload that the Mac names, where it is another
    named: str = ""
    status: Status
    kind: FallbackKind | None = None
    #: ``file:line``; empty where the report has none
    line: str = ""
    dtypes: tuple[str, ...] = ()
    count: int = 1
    confidence: Confidence | None = None
    because: str = ""
    limitations: tuple[str, ...] = ()
    prints: str = ""


class Pair(Record, frozen=True, kw_only=True):
    """Calls that are in both reports."""

    op: str
    line: str
    dtypes: tuple[str, ...]
    predicted: Status
    observed: Status
    #: how many calls were observed
    count: int
    because: str
    seen: str
    prints: str = ""
    limitations: tuple[str, ...] = ()
    #: whether the statuses are equal
    agrees: bool


class Rate(Record, frozen=True, kw_only=True):
    """How many pairs have a status in both reports, in the prediction and in the observation."""

    status: Status
    both: int
    predicted: int
    observed: int
    #: of the predicted and of the observed ones those in both; None: there are none
    precision: float | None
    recall: float | None


class Verification(Record, frozen=True, kw_only=True):
    """The result of a comparison."""

    schema: str = "opcheck-verification/1"
    prediction: str
    observation: str
    torch: str
    macos: str
    machine: str
    build: str
    pairs: tuple[Pair, ...]
    #: predicted calls that are not in the observation
    unobserved: tuple[ReportedCalls, ...] = msgspec.field(name="unseen")
    #: observed calls that are not in the prediction
    unpredicted: tuple[ReportedCalls, ...] = msgspec.field(name="unforeseen")
    notes: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()

    @property
    def contradictions(self) -> tuple[Pair, ...]:
        """Return the pairs where the Mac contradicts the prediction; "unknown" claims nothing."""
        return tuple(pair for pair in self.pairs if not pair.agrees and pair.predicted != "unknown")

    @property
    def agreements(self) -> tuple[Pair, ...]:
        """Return the pairs where both reports agree."""
        return tuple(pair for pair in self.pairs if pair.agrees)


def _rates(pairs: Sequence[Pair]) -> Iterator[Rate]:
    """Count the pairs of each status that some pair has; "unknown" claims nothing."""
    judged = [pair for pair in pairs if pair.predicted != "unknown"]
    both = Counter(pair.observed for pair in judged if pair.agrees)
    predicted = Counter(pair.predicted for pair in judged)
    observed = Counter(pair.observed for pair in judged)
    for status in STATUSES:
        counted, claimed, seen = both[status], predicted[status], observed[status]
        if claimed or seen:
            yield Rate(
                status=status,
                both=counted,
                predicted=claimed,
                observed=seen,
                precision=counted / claimed if claimed else None,
                recall=counted / seen if seen else None,
            )


def ratio(part: int, whole: int) -> str:
    """Format a ratio with three digits; a dash if ``whole`` is zero."""
    return f"{part / whole:.3f}" if whole else "-"


def calls_of(report: Report) -> tuple[ReportedCalls, ...]:
    """Return the calls of a report, in its order."""
    return tuple(calls for group in report.groups for calls in _by_line(group))


def _by_line(group: CallGroup) -> Iterator[ReportedCalls]:
    counts: Counter[str] = Counter()
    for place in group.locations:
        counts[place.line] += place.count
    calls = msgspec.convert(group, ReportedCalls, from_attributes=True)
    for line, count in (counts or Counter({"": group.count})).items():
        yield msgspec.structs.replace(calls, line=line, count=count)


def verify(prediction: Report, observation: Report, lists: OpLists) -> Verification:
    """Compare a prediction with an observation.

    Args:
        prediction: of ``opcheck audit`` or of an emulated run.
        observation: of ``opcheck run`` on a Mac, or of ``opcheck observe``.
        lists: the op lists, with the operators that an operator forwards to.

    Raises:
        UsageError: nothing in the second report was observed.
        OpListError: the lists lack the release.
    """
    expected, observed = calls_of(prediction), calls_of(observation)
    # A run that broke off at its first call has nothing else to show than that.
    if not any(calls.confidence == CONFIDENCE for calls in observed) and observation.capture.complete:
        raise UsageError(
            "nothing in the second report was observed",
            context=observation.model,
            hint="opcheck verify PREDICTION OBSERVATION: the report of an audit, then that of a "
            "run on a Mac or of opcheck observe",
        )
    index = _PredictionIndex(expected, prediction.target.torch, lists)
    pairs: list[Pair] = []
    matched: set[int] = set()
    unpredicted = []
    for calls in observed:
        if not (numbers := index.matches(calls)):
            unpredicted.append(calls)
            continue
        best = min(numbers, key=lambda number: (expected[number].status != calls.status, number))
        matched.update(numbers)
        pairs.append(_pair(calls, expected[best]))
    return Verification(
        prediction=prediction.model,
        observation=observation.model,
        torch=observation.target.torch,
        macos=observation.target.macos,
        machine=observation.capture.packages.get("machine", ""),
        build=observation.capture.packages.get("macos build", ""),
        pairs=tuple(pairs),
        unobserved=tuple(calls for i, calls in enumerate(expected) if i not in matched),
        unpredicted=tuple(unpredicted),
        notes=tuple(_notes(prediction, observation)),
        rates=tuple(_rates(pairs)),
    )


def _pair(observed: ReportedCalls, expected: ReportedCalls) -> Pair:
    return Pair(
        op=observed.op if observed.op != NOT_NAMED else expected.op,
        line=observed.line or expected.line,
        dtypes=observed.dtypes or expected.dtypes,
        predicted=expected.status,
        observed=observed.status,
        count=observed.count,
        because=expected.because,
        seen=observed.because,
        prints=observed.prints,
        limitations=observed.limitations or expected.limitations,
        agrees=expected.status == observed.status,
    )


class _PredictionIndex:
    """The predicted calls by every name that an observation may have for their operator."""

    def __init__(self, expected: Sequence[ReportedCalls], line: str, lists: OpLists) -> None:
        self._expected = expected
        self._line = line
        self._lists = lists
        self._by_name: dict[str, list[int]] = {}
        self._by_statement: dict[str, list[int]] = {}
        for number, calls in enumerate(expected):
            names = {calls.op, self._last(calls.op), *([calls.named] if calls.named else [])}
            # The profiler leaves the overload out.
            for name in names | {name.partition(".")[0] for name in names}:
                self._by_name.setdefault(name, []).append(number)
            for statement in calls.limitations:
                self._by_statement.setdefault(statement, []).append(number)

    def _last(self, op: str) -> str:
        """The operator that this operator forwards to, as a functional form to its ``.out``."""
        return self._lists.resolve(op, self._line).chain[-1]

    def matches(self, observed: ReportedCalls) -> list[int]:
        """The numbers of the predicted calls that the observed ones may be."""
        if observed.op == NOT_NAMED:
            # The printed text names no operator; the statement that quotes it does.
            keys, by_key = observed.limitations, self._by_statement
        else:
            keys, by_key = (observed.op, self._last(observed.op)), self._by_name
        same_op = sorted({number for key in keys for number in by_key.get(key, ())})
        name, _, overload = observed.op.partition(".")
        if not same_op and overload.endswith("out"):
            # Without a kernel of its own a functional form calls its .out, which is what the Mac then names
            # (torchgen/dest/register_dispatch_key.py, structured functional kernels).
            same_op = self._by_name.get(name, [])
        lines = {number: self._expected[number].line for number in same_op}
        same_line = [number for number in same_op if _same_line(observed.line, lines[number])]
        # A log, or a wrapper, may name another line than the audit: then only the operator counts.
        if not same_line and not (observed.line and any(lines.values())):
            same_line = same_op
        own = set(observed.dtypes)
        theirs = {number: self._expected[number].dtypes for number in same_line}
        same_dtypes = [n for n, dtypes in theirs.items() if not own or not dtypes or not own.isdisjoint(dtypes)]
        return same_dtypes or same_line


def _same_line(first: str, second: str) -> bool:
    """Return whether two ``file:line`` are the same, as far as the shorter path goes."""
    if not first or not second:
        return False
    steps, others = (text.replace("\\", "/").split("/") for text in (first, second))
    shared = min(len(steps), len(others))
    return steps[-shared:] == others[-shared:]


def _notes(prediction: Report, observation: Report) -> Iterator[str]:
    for what in ("torch", "macos", "cpu_fallback"):
        predicted, observed = (getattr(each.target, what) for each in (prediction, observation))
        if predicted != observed:
            yield f"the targets differ in {what}: predicted for {predicted}, observed on {observed}"
    if not prediction.capture.complete:
        yield "the prediction broke off before its end: what follows it could not foresee"
    if not observation.capture.complete:
        yield "the observed run did not come to its end: what follows it was not seen"
    if observation.capture.tracer == "log":
        yield "the observation is of logs: a call that printed nothing is not in it"
    if observation.capture.tracer == "stand-in":
        yield "the observation is of an emulated Mac: it tests opcheck and proves nothing about a Mac"


# -- drafts statements for the op lists from contradictions, in the form of op_lists/limitations --
# A person judges the drafts: what a Mac did with some inputs is evidence, not yet a rule.
# ``opcheck lists merge`` reviews them.

#: by the observed status, the effect of a statement
_EFFECTS = {"unsupported": "raises", "fallback": "falls_back"}
_ENDINGS = {"unsupported": "raises", "fallback": "cpu"}
#: by the predicted status, those that are worse: only they can be limitations
_WORSE = {"native": ("fallback", "unsupported"), "fallback": ("unsupported",)}
_DONE = {"unsupported": "raised", "fallback": "ran on the CPU", "native": "ran on mps"}


def draft_statements(verification: Verification, lists: OpLists) -> str:
    """Write a file of drafted limitations; where the Mac did better than predicted, a comment.

    Raises:
        UsageError: nothing contradicts the prediction.
    """
    entries = list(_entries(verification, lists))
    better = [pair for pair in verification.contradictions if pair.observed not in _WORSE.get(pair.predicted, ())]
    if not entries and not better:
        text = "there is nothing to propose: nothing contradicts the prediction"
        compared = f"{verification.prediction} against {verification.observation}"
        raise UsageError(text, context=compared, hint="leave --propose out")
    body = yaml.safe_dump({"schema": 1, "limitations": entries}, sort_keys=False, allow_unicode=True, width=110)
    head = (
        "# Proposed by opcheck verify; a person judges each entry, and widens or narrows its span.\n"
        f"# Observed: {_machine(verification)}.\n"
    )
    return "".join([head, *_comments(better), body])


def _comments(better: Sequence[Pair]) -> Iterator[str]:
    for pair in better:
        did = _DONE.get(pair.observed, pair.observed)
        look = f"; look at {', '.join(pair.limitations)}" if pair.limitations else ""
        yield f"# {pair.op} at {pair.line or 'an unknown line'}: predicted {pair.predicted}, it {did}{look}\n"


def _entries(verification: Verification, lists: OpLists) -> Iterator[dict[str, Any]]:
    taken = set(lists.statements.by_id)
    alike: dict[tuple[str, Status, str], list[Pair]] = {}
    for pair in verification.contradictions:
        if pair.observed in _WORSE.get(pair.predicted, ()) and pair.op != NOT_NAMED and "::" in pair.op:
            alike.setdefault((pair.op, pair.observed, pair.prints), []).append(pair)
    for (op, status, prints), pairs in alike.items():
        name = _free(name_statement(op, _ENDINGS[status]), taken)
        taken.add(name)
        dtypes = sorted({dtype for pair in pairs for dtype in pair.dtypes})
        release = Version.parse(verification.torch)
        lines = ", ".join(sorted({pair.line or "an unknown line" for pair in pairs}))
        detail = f"{plural(sum(pair.count for pair in pairs), 'time')} at {lines}"
        yield {
            "id": name,
            "ops": [op],
            "effect": _EFFECTS[status],
            "torch": {"since": str(release), "until": next_release(release, lists)},
            **({"dtypes": dtypes} if dtypes else {}),
            "when": "observed with some inputs; which of their dtypes, shapes or values decide is not known",
            **(_error(status, prints) if prints else {}),
            "summary": f"{op} was predicted {pairs[0].predicted} and {_DONE[status]} on a Mac.",
            "evidence": [
                {"kind": "measured", "torch": str(release), "where": _machine(verification), "detail": detail}
            ],
        }


def next_release(release: Version, lists: OpLists) -> str | None:
    """Return the next release line, where a claim ends; None for the newest release."""
    return next((str(line) for line in lists.versions if line > release), None)


def _error(status: Status, prints: str) -> dict[str, Any]:
    kind = "UserWarning" if status == "fallback" else _type(prints)
    return {"error": {"type": kind, "text": prints.removeprefix(f"{kind}: ")}}


def _type(prints: str) -> str:
    if "failed assertion" in prints or "LLVM ERROR" in prints:
        return "SIGABRT"
    if "not currently implemented" in prints:
        return "NotImplementedError"
    return "TypeError" if "dtype" in prints else "RuntimeError"


def _machine(verification: Verification) -> str:
    build = f" ({verification.build})" if verification.build else ""
    machine = verification.machine or "a machine that the log does not name"
    return f"{machine}, macOS {verification.macos}{build}, torch {verification.torch}"


def name_statement(op: str, ending: str) -> str:
    """Return the id of a drafted statement on an overload: ``seen-``, the words of its name, and an ending."""
    words = re.findall(r"[a-z0-9]+", op.partition("::")[2].lower())
    return "-".join(("seen", *words, ending))


def _free(name: str, taken: set[str]) -> str:
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if free not in taken)
