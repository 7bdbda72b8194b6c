"""Judge a plain call: an overload called with tensors of one dtype and default arguments.

The judge decides, on calls that are made for it.  What it says depends on shapes only where a
statement has a condition on them: then calls of several ranks are made, and the mildest verdict is
that of the plain call, since a statement that spares one of them does not apply to every call.
"""

import functools
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from opcheck.common.memo import cached_method
from opcheck.common.text import and_more
from opcheck.common.versions import Target, Version
from opcheck.data.composites import CompositeBody
from opcheck.data.conditions import ATTRIBUTES
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.data.tables import refused_by
from opcheck.judge.judge import OUTCOMES, judge_by_lists, outcome, refused_everywhere
from opcheck.lookup.answer_records import State
from opcheck.lookup.answer_words import REMOVED
from opcheck.lookup.operator_facts import INNER_DTYPES, OperatorFacts, is_python, tests_dtypes
from opcheck.model.records import Evidence, OpCall, TensorSpec, Verdict, contiguous_stride

#: The dtypes that a coverage table shows; all others only on request.
COMMON_DTYPES = (
    *("float32", "float16", "bfloat16", "float64", "complex64"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)

#: The candidates for a default dtype: the first that the operator takes.
DEFAULT_DTYPES = ("float32", "int64", "complex64", "bool")

#: Arguments that have a dtype of their own, whatever the call computes in.
_OWN_DTYPES = {"index": "int64", "indices": "int64", "offsets": "int64", "mask": "bool", "condition": "bool"}

#: The usual ones first: most often the first call says all.
_RANKS = (2, 4, 3, 1, 5, 0)
#: An operator over n spatial dimensions is called with a batch and channels before them.
_SPATIAL = re.compile(r"(?:^|[a-z_])([123])d(?:_|$)")
_BATCH_AND_CHANNELS = 2
_SIZE = 2
#: Operators that make or view memory: other calls are named before them.
BOOKKEEPING = frozenset(
    f"aten::{name}" for name in ("as_strided", "empty.memory_format", "empty_strided", "permute", "view", "zero_")
)
#: From here on a state does not say that the operator takes the dtype: unknown, and unsupported.
_NOT_TAKEN = 2 * OUTCOMES["unknown", None].severity
#: How many overloads a reason names.
_NAMED = 4


class _Likeness(NamedTuple):
    """What distinguishes plain calls to the judge, apart from their dtypes."""

    #: the number of the registrations on which the verdict rests.
    facts: int
    #: the dtypes of arguments that have their own.
    own: frozenset[str]
    #: the statements that hold on the target.
    holding: tuple[str, ...]


class OperatorLookup:
    """Judges plain calls of operators by one copy of the op lists, and caches the verdicts."""

    def __init__(self, lists: OpLists) -> None:
        self.lists = lists
        self.operators = OperatorFacts(lists)
        self._verdicts: dict[tuple[str, Target, str, int], Verdict] = {}
        self._states: dict[int, State] = {}
        self._numbers: dict[Hashable, int] = {}
        self._likenesses: dict[int, _Likeness] = {}
        #: the lists, as an answer names them
        self.about = {"digest": lists.digest, "newest": lists.releases[-1].torch}

    def verdict(self, op: str, target: Target, dtype: str) -> Verdict:
        """Return what the target does with a plain call.

        Args:
            op: the overload.
            target: the release and the macOS version.
            dtype: of the call's tensors.

        Raises:
            OpListError: the lists have no such torch release, or are damaged.
        """
        if is_removed(op, str(target.torch)):
            return _removed_verdict(op)
        torch = refused_by(op, dtype)
        if torch and self.operators.resolution(op, str(target.torch)).value is not None:
            return refused_everywhere(op, dtype, torch)
        return self._verdict(op, target, dtype, 0)

    def _verdict(self, op: str, target: Target, dtype: str, spatial: int) -> Verdict:
        """Return the verdict by the lists of the target alone; a composite may call the overload in another dtype.

        ``spatial`` is the number of spatial dimensions over which a composite calls it; 0 if unknown.
        """
        dtype = self.operators.alike(op, target, dtype)
        spatial = spatial_of(op) or spatial
        key = (op, target, dtype, spatial)
        if key not in self._verdicts:
            # Set first, because the calls of a composite may lead back to it.
            self._verdicts[key] = Verdict(status="unknown", because=f"{op} calls itself again", confidence="inferred")
            self._verdicts[key] = self._decide(op, target, dtype, spatial)
        return self._verdicts[key]

    def state(self, op: str, target: Target, dtype: str | None = None) -> State:
        """Return the verdict's status and kind, in the default dtype if none is named.

        Calls that no data distinguish are judged once.
        """
        dtype = dtype or self.default_dtype(op, target)
        if refused_by(op, dtype):
            return self._state(self.verdict(op, target, dtype))
        key = self._matching(self._likeness(op, target), dtype)
        if key not in self._states:
            self._states[key] = self._state(self.verdict(op, target, dtype))
        return self._states[key]

    @cached_method
    def _likeness(self, op: str, target: Target) -> int:
        """Return a number for what distinguishes plain calls, apart from dtypes: targets often have equal data."""
        facts, own, statements = self._facts(op, str(target.torch))
        holding = tuple(each.id for each in statements if target.macos in each.macos)
        number = self._number(likeness := _Likeness(facts, own, holding))
        self._likenesses[number] = likeness
        return number

    def _number(self, value: Hashable) -> int:
        """Return the same small number for equal values: a long tuple as a key is hashed at each look."""
        return self._numbers.setdefault(value, len(self._numbers))

    @cached_method
    def _facts(self, op: str, line: str) -> tuple[int, frozenset[str], tuple[Statement, ...]]:
        """Return a number for the registrations, the dtypes of the call's arguments, and the statements."""
        about = self.operators.statements_on(op, line)
        general = (*self.operators.everywhere(line), *self.operators.on_kernels(op, line))
        resolution, facts = self.operators.resolution(op, line), self._overload(op, line)
        followed = resolution.status == "composite" and self.operators.calls(op, line)
        if followed or about or resolution.status == "unknown":
            facts = tuple((name, *self._overload(name, line)) for name in self.operators.deciding(op, line))
        names = {name for each in about for name in (*each.dtypes_of, *_tensor_names(each))}
        own = frozenset(_OWN_DTYPES[name] for name in names if name in _OWN_DTYPES)
        return self._number(facts), own, (*about, *general)

    @cached_method
    def _overload(self, op: str, line: str) -> tuple[Hashable, ...]:
        """Return what decides on one overload, apart from statements and from what it calls in turn."""
        resolution = self.operators.resolution(op, line)
        calls = self.operators.calls(op, line) if resolution.status == "composite" else None
        return (
            resolution.status,
            resolution.kind,
            # What no list has is judged by its release.
            line if resolution.status == "unknown" else "",
            self.lists.operators(line, "SparseMPS").get(op),
            calls and (calls.always, calls.sometimes),
            self._arguments(op, line),
        )

    @cached_method
    def _matching(self, number: int, dtype: str) -> int:
        """Return a number for the statements that can match a call in the dtype, and what they distinguish of it."""
        likeness = self._likenesses[number]
        dtypes = {dtype, *likeness.own}
        statements = (self.lists.statements.by_id[name] for name in likeness.holding)
        hit = (s for s in statements if s.dtypes_of or not s.dtypes or not dtypes.isdisjoint(s.dtypes))
        matching = tuple((each.id, dtype in each.dtypes) for each in hit)
        by_id = self.lists.statements.by_id
        tests = any(tests_dtypes(by_id[name].condition) for name, _ in matching)
        return self._number((likeness.facts, matching, dtype if tests else ""))

    def _state(self, verdict: Verdict) -> State:
        """Return the verdict as a state; a native call is marked where a statement makes its result wrong."""
        # A condition that a plain call does not decide is one on arguments, which the call leaves out.
        certain = {entry.detail for entry in verdict.evidence}
        names = (*verdict.advisories, *verdict.limitations) if verdict.status == "native" else ()
        statements = map(self.lists.statements.by_id.__getitem__, names)
        faults = (each for each in statements if each.effect == "wrong_result")
        frequencies = {each.frequency for each in faults if not each.condition or each.id in certain}
        wrong: Literal["", "always", "sometimes"] = ""
        if frequencies - {"rarely"}:
            wrong = "always" if "always" in frequencies else "sometimes"
        return State(status=verdict.status, kind=verdict.kind, wrong=wrong)

    def states(self, op: str, target: Target, dtypes: Iterable[str]) -> dict[str, State]:
        """Return the state of each dtype."""
        return {dtype: self.state(op, target, dtype) for dtype in dtypes}

    def plain(self, op: str, target: Target, dtype: str | None = None) -> tuple[str, Verdict]:
        """Return the dtype of a question that may name none, and the verdict."""
        dtype = dtype or self.default_dtype(op, target)
        return dtype, self.verdict(op, target, dtype)

    @cached_method
    def default_dtype(self, op: str, target: Target) -> str:
        """Return the dtype for a question that names none: the first usual dtype that the operator takes.

        Where it takes none of them the mildest state decides.
        """
        states: dict[str, State] = {}
        for dtype in DEFAULT_DTYPES:
            states[dtype] = self.state(op, target, dtype)
            if severity(states[dtype]) < _NOT_TAKEN:
                return dtype
        return min(states, key=lambda dtype: severity(states[dtype]))

    def _decide(self, op: str, target: Target, dtype: str, spatial: int) -> Verdict:
        line = str(target.torch)
        if is_python(op) or self.operators.composite(op, line):
            return self._composite(op, target, dtype, spatial)
        calls = self._make_calls(op, line, dtype, spatial)
        if self.operators.resolution(op, line).status != "native":
            calls = calls[:1]  # no call is milder: statements only ever make a verdict worse
        return self._mildest(calls, target)

    def _mildest(self, calls: Iterable[OpCall], target: Target) -> Verdict:
        """Return the mildest verdict; the first of equal ones."""
        verdicts = []
        for call in calls:
            verdicts.append(judge_by_lists(call, target, self.lists))
            if verdicts[-1].status == "native":
                break
        return min(verdicts, key=lambda verdict: outcome(verdict).severity)

    def _composite(self, op: str, target: Target, dtype: str, spatial: int) -> Verdict:
        """Return the worst verdict of the operators that it calls in every case, each judged with the dtype it gets.

        What it calls with some arguments only decides where it computes nothing in every case
        (``torch.stft`` always makes a view, and calls one of two transforms); else the reason names it.
        """
        calls = self.operators.calls(op, str(target.torch))
        own = self._own(op, target, dtype, spatial)
        if calls is None or not calls.both or own.status != "native":
            return own
        dtypes = {name: INNER_DTYPES.get((op, name), dtype) for name in calls.both}
        judged = {name: self._verdict(name, target, inner, spatial) for name, inner in dtypes.items()}
        computes = not BOOKKEEPING.issuperset(calls.always) or not calls.sometimes
        usual = calls.always if computes else calls.sometimes
        if is_python(op) and not calls.always:
            # The usual form of nn.Dropout, in evaluation, calls nothing.
            judged[op], usual = own, (op,)

        def worst_among(names: Iterable[str]) -> str:
            return max(names, key=lambda name: (outcome(judged[name]).severity, name))

        decider = worst_among(usual)
        worst = judged[decider]
        because = f"it calls {decider}: {worst.because}"
        if worst.status == "native":
            # The evidence has all names.
            ordered = sorted(usual, key=lambda name: (name in BOOKKEEPING, name))
            because = own.because if usual == (op,) else f"it calls {and_more(ordered, _NAMED)}"
        otherwise = "with other arguments or in training" if is_python(op) else "with some arguments"
        for name in (worst_among(calls.sometimes),) if calls.sometimes else ():
            if outcome(judged[name]).severity > outcome(worst).severity:
                because += f"; {otherwise} it calls {name}: {judged[name].because}"
        how = "read in the library of" if calls.read else "seen with"
        seen = f"it calls {', '.join(sorted(calls.both))} ({how} torch {calls.torch})"
        return replace(
            worst,
            because=because,
            evidence=(*own.evidence[:1], Evidence(kind="capture", torch=calls.torch, detail=seen), *worst.evidence),
            confidence="inferred",
            named="" if worst.status == "native" else worst.named or decider,
            limitations=tuple(sorted({*own.limitations, *worst.limitations})),
            advisories=tuple(sorted({*own.advisories}.union(*(judged[name].advisories for name in usual)))),
        )

    def _own(self, op: str, target: Target, dtype: str, spatial: int) -> Verdict:
        """Return the verdict of a composite as if its body called nothing: by the statements on itself alone."""
        line = str(target.torch)
        calls = self.operators.calls(op, line)
        if is_python(op):
            return _python_verdict(op, target, calls)
        made = self._make_calls(op, line, dtype, spatial)
        return self._mildest((replace(each, inner=None if calls is None else ()) for each in made), target)

    @cached_method
    def _make_calls(self, op: str, line: str, dtype: str, spatial: int) -> tuple[OpCall, ...]:
        """Return one call, or one of each rank if a statement tests shapes."""
        names, conditional = self._arguments(op, line)
        ranks = _RANKS if conditional and not spatial else (spatial + _BATCH_AND_CHANNELS,)
        return tuple(_call(op, names, dtype, rank) for rank in ranks)

    @cached_method
    def _arguments(self, op: str, line: str) -> tuple[tuple[str, ...], bool]:
        """Return the tensor arguments of a plain call, and whether a statement on it has a condition."""
        statements = self.operators.statements_on(op, line)
        arguments = self.lists.statements.arguments.get(op, {})
        named = (name for each in statements for name in (*each.dtypes_of, *_tensor_names(each)))
        every = (name for name in dict.fromkeys(("self", *named)) if name != "result")
        # A plain call omits the arguments that have defaults.
        names = tuple(n for n in every if n not in arguments or not arguments[n].optional)
        # Statements on the operators that it calls do not apply to the call itself.
        own = {each.id for each in self.lists.statements.for_op(op, line) if each.condition}
        return names, any(each.id in own for each in statements)


def severity(state: State) -> int:
    """Return how bad a state is; 0 is native with right results."""
    return 2 * OUTCOMES[state.status, state.kind].severity + bool(state.wrong)


#: How many calls are kept, so that the same call is judged on many targets.
_MOST_CALLS = 4096


@functools.lru_cache(_MOST_CALLS)
def _call(op: str, names: Sequence[str], dtype: str, rank: int) -> OpCall:
    *inputs, output = (_tensor(number, name, dtype, rank) for number, name in enumerate((*names, "")))
    return OpCall(op=op, inputs=tuple(inputs), outputs=(output,))


def is_removed(op: str, line: str) -> bool:
    """Return whether this release or an earlier release has removed the operator."""
    removed = REMOVED.get(op.partition(".")[0])
    return removed is not None and Version.parse(line) >= Version.parse(removed[0])


def _removed_verdict(op: str) -> Verdict:
    """Return the verdict on an operator that a release has removed."""
    since, instead = REMOVED[op.partition(".")[0]]
    word = op.partition("::")[2].partition(".")[0]
    because = f"torch {since} removed {word}, and the call raises on every device"
    detail = f"{op} is registered for no device from torch {since} on"
    evidence = (Evidence(kind="registration", torch=since, detail=detail),)
    return Verdict(
        status="unsupported", because=f"{because}; write {instead}" if instead else because, evidence=evidence
    )


def _python_verdict(name: str, target: Target, calls: CompositeBody | None) -> Verdict:
    """Return the verdict on Python code that calls no operator; unknown where the release lacks the name."""
    if calls is None:
        because = f"torch {target.torch} has no {name}, or nothing was recorded of it"
        return Verdict(status="unknown", because=because, confidence="inferred")
    detail = f"{name} was run on the simulated Mac, with the registrations of {target.torch}"
    seen = Evidence(kind="capture", torch=calls.torch, detail=detail)
    because = f"{'its usual form' if calls.both else 'it'} calls no operator"
    return Verdict(status="native", because=because, confidence="inferred", evidence=(seen,))


def spatial_of(op: str) -> int:
    """Return over how many dimensions an operator works by its name; 0: unknown."""
    name = op.rpartition(".")[2] if is_python(op) else op.partition("::")[2].partition(".")[0]
    match = _SPATIAL.search(name)
    return int(match[1]) if match else 0


def _tensor_names(statement: Statement) -> list[str]:
    """Return the names that the condition uses with an attribute that only tensors have."""
    if statement.parsed is None:
        return []
    asked = "|".join(ATTRIBUTES)
    return sorted(name for name in statement.parsed.names if re.search(rf"\b{name}\.({asked})\b", statement.condition))


def _tensor(number: int, argument: str, dtype: str, rank: int) -> TensorSpec:
    shape, dtype = (_SIZE,) * rank, _OWN_DTYPES.get(argument, dtype)
    stride = contiguous_stride(shape)
    return TensorSpec(tensor=number, storage=number, dtype=dtype, shape=shape, stride=stride, argument=argument)


@functools.cache
def target(torch: str, macos: str) -> Target:
    """Return the target without the fallback variable."""
    return Target(torch=Version.parse(torch), macos=Version.parse(macos))
