"""Judges calls as they happen, with the conditions of statements on their values; equal calls are judged once."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import msgspec
import torch

from opcheck.capture.child.recording.graph import fill_arguments, op_call
from opcheck.capture.child.recording.recorder import RecordedCall, Ref
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import RouteKind, Side
from opcheck.data.conditions import check_values
from opcheck.data.matching import holds_but_for_words
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.device.emulator.child.mac_errors import error_of, indices, warning_of
from opcheck.judge.callgraph import route_of
from opcheck.judge.judge import judge, outcome, statement_evidence
from opcheck.judge.memory.growth import compiles_graph
from opcheck.model.records import OpCall, Verdict
from opcheck.simulator.dispatch.calls import Call
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import spec_of
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map_only

#: the arguments of a call by their names: tensors of the CPU with the call's values, other arguments as they are
Given = Mapping[str, Any]


def _limits(tensor: torch.Tensor) -> Any:
    if tensor.is_floating_point():
        return torch.finfo(tensor.dtype)
    return torch.iinfo(torch.int8 if tensor.dtype == torch.bool else tensor.dtype)


def _distance_from_bins(given: Given) -> torch.Tensor:
    """Return how far each element of a histogram's input lies outside of the bins."""
    numbers, bins = given["self"].double(), given["bins"]
    if isinstance(bins, torch.Tensor):
        low, high = bins[0], bins[-1]
    else:
        low, high = given.get("range") or (given.get("min", 0), given.get("max", 0))
        if low == high == 0:  # the bins span the elements
            return torch.zeros_like(numbers)
    return torch.maximum(low - numbers, numbers - high).clamp_min(0)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in ("abs", "all", "any", "cumsum", "exp", "flatten", "floor", "isfinite")},
    **{name: getattr(torch, name) for name in ("isinf", "isnan", "log", "real", "sum")},
    "blocked": lambda mask: ~mask if mask.dtype == torch.bool else mask == -math.inf,
    "highest": lambda tensor: _limits(tensor).max,
    "imag": lambda tensor: tensor.imag if tensor.is_complex() else torch.zeros_like(tensor),
    "is_deficient": lambda matrices: bool((torch.linalg.matrix_rank(matrices) < min(matrices.shape[-2:])).any()),
    "len": len,
    "long": torch.Tensor.long,
    "lowest": lambda tensor: _limits(tensor).min,
    "narrow": torch.Tensor.float,
    "repeats": lambda index: len(set(index.flatten().tolist())) < index.numel(),
    "spread": lambda tensor, dim: tensor.amax(dim) - tensor.amin(dim),
    "variance": lambda rows, shape: rows.double().reshape(-1, math.prod(shape)).var(-1, unbiased=False),
    "wide": torch.Tensor.double,
}


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128) if value.is_complex() else value


class _ConditionNames(dict[str, Any]):
    """The names of an expression; ``first`` and ``tensors`` are made when they are used."""

    def __init__(self, given: Given) -> None:
        super().__init__(_FUNCTIONS)
        # In complex128: complex32 has few operators on the CPU, and abs() of small numbers underflows in complex64.
        self.update(tree_map_only(torch.Tensor, _widen, dict(given)))
        self._tensors = [each for each in tree_leaves(given) if isinstance(each, torch.Tensor)]
        self.update(
            inf=math.inf,
            distance_from_bins=lambda: _distance_from_bins(given),
            is_any_conjugated=lambda: any(tensor.is_conj() for tensor in self._tensors),
            is_index_outside=lambda: any(bool(each.outside().any()) for each in indices(given)),
            is_index_at_end=lambda: any(bool((each.tensor == each.size).any()) for each in indices(given)),
        )

    def __missing__(self, name: str) -> Any:
        if name == "first":
            return _widen(self._tensors[0])
        if name == "tensors":
            # In float64: abs() of the lowest integer is negative.
            wide = [_widen(t) if t.is_complex() else t.double() for t in self._tensors]
            return torch.cat([tensor.flatten() for tensor in wide])
        if name == "dim":  # the overload reduces all dimensions
            return None
        raise KeyError(name)


@functools.cache
def _compile_condition(text: str) -> CodeType:
    check_values(text)
    return compile(text, "values", "eval")


def holds(text: str, given: Given) -> bool | None:
    """Return whether the expression is true for a call; None where its arguments do not decide it."""
    try:
        with torch.no_grad():
            # It has passed check_values: no attributes, no functions but those above. torch imports at its first use.
            code, names = _compile_condition(text), _ConditionNames(given)
            return bool(eval(code, {"__builtins__": {"__import__": __import__}}, names))  # noqa: S307
    except (NameError, LookupError, StopIteration, RuntimeError, TypeError, AttributeError, ValueError):
        return None


# -- judges calls as they happen; equal calls are judged once --

#: So many verdicts are kept: keys have numbers, such as a step size, that change in each step.
_KEPT = 20_000


class JudgedCall(NamedTuple):
    """A verdict, and the error or warning that a program sees."""

    verdict: Verdict
    #: mps, cpu, unknown, raises
    side: Side
    error: BaseException | None
    warning: str
    dtypes: tuple[str, ...]
    call: OpCall
    #: statements whose words the values of a call decide
    open: tuple[Statement, ...] = ()
    route: RouteKind = "unknown"


class Verdicts:
    """Judges calls for a target."""

    def __init__(self, target: Target, lists: OpLists) -> None:
        self._target = target
        self._lists = lists
        self._by_key: dict[Any, JudgedCall] = {}
        self._by_kind: dict[Any, JudgedCall] = {}
        self._details: dict[str, bool] = {}
        self._graphs: dict[tuple[str, RouteKind], bool] = {}
        self._same: dict[Verdict, Verdict] = {}
        #: which statements the values of the call in progress decide, read before it writes to its arguments
        self._decided: dict[str, bool] = {}

    def compiles_graph(self, op: str, route: RouteKind) -> bool:
        """Return whether a call with this route may compile a graph of MPSGraph."""
        key = (op, route)
        if key not in self._graphs:
            self._graphs[key] = compiles_graph(op, route, self._target, self._lists)
        return self._graphs[key]

    @property
    def torch(self) -> Version:
        """Return the release of the target."""
        return self._target.torch

    def retarget(self, target: Target) -> None:
        """Judge for another target from here on."""
        self._target = target
        for kept in (self._by_key, self._by_kind, self._details, self._graphs):
            kept.clear()

    def before_call(self, call: Call) -> JudgedCall | None:
        """Return the verdict of a call before it is computed; None where the result may decide.

        Raises:
            OpListError: the lists are damaged.
        """
        earlier = self._by_key.get(_key(call))
        judged = earlier or self._judge(call)
        self._decided = _decide(judged, call) if judged.open else {}
        return earlier if judged.error is None else judged

    def after_call(self, call: Call) -> JudgedCall:
        """Return the verdict of a call that has its results.

        Raises:
            OpListError: the lists are damaged.
        """
        if call.not_computed and not any(self._decided.values()):
            return self._not_computed(call)
        key = _key(call)
        if (earlier := self._by_key.get(key)) is None:
            if len(self._by_key) >= _KEPT:
                self._by_key.clear()
            earlier = self._by_key[key] = self._judge(call)
        return self._with_values(earlier) if earlier.open else earlier

    def _with_values(self, judged: JudgedCall) -> JudgedCall:
        """Return the verdict with the statements that the values decide: certain, or left out."""
        verdict = judged.verdict
        held = [each for each in judged.open if self._decided.get(each.id)]
        out = {each.id for each in judged.open if self._decided.get(each.id) is False}
        verdict = msgspec.structs.replace(
            verdict,
            advisories=tuple(name for name in verdict.advisories if name not in out),
            limitations=tuple(name for name in verdict.limitations if name not in out),
            evidence=(*verdict.evidence, *statement_evidence(held)),
        )
        return judged._replace(verdict=self._same.setdefault(verdict, verdict))

    def _not_computed(self, call: Call) -> JudgedCall:
        """Return an unknown verdict, not a native verdict: the program never got this result."""
        judged = self._with_values(self._afresh(call))
        if judged.verdict.status != "native":
            return judged
        because = call.not_computed.removeprefix(f"{call.route.name}: ")
        stated: Any = {"limitations": judged.verdict.limitations, "advisories": judged.verdict.advisories}
        verdict = Verdict(status="unknown", because=because, confidence="inferred", **stated)
        verdict = self._same.setdefault(verdict, verdict)
        return judged._replace(verdict=verdict, side=outcome(verdict).side, error=None, warning="")

    def _judge(self, call: Call) -> JudgedCall:
        name = call.route.name
        if name not in self._details:
            self._details[name] = any(
                self._lists.statements.need_details(op, str(self._target.torch)) for op in (name, *(call.inner or ()))
            )
        if self._details[name] or call.refusal is not None or call.in_refused_dtype:
            return self._afresh(call)
        kind = (name, call.inner, _kinds(call.inputs), _kinds(call.outputs))
        if kind not in self._by_kind:
            self._by_kind[kind] = self._afresh(call)
        return self._by_kind[kind]

    def _afresh(self, call: Call) -> JudgedCall:
        storages: dict[int, int] = {}
        inputs, outputs = _refs(call.inputs, storages), _refs(call.outputs, storages)
        record = op_call(RecordedCall(call.route, call.key, inputs, outputs, call.body, call.refusal, call.recomputed))
        verdict = judge(record, self._target, self._lists)
        verdict = self._same.setdefault(verdict, verdict)
        error = error_of(verdict, record, self._target, self._lists)
        warning = warning_of(verdict, call.route.name, self._lists)
        dtypes = tuple(sorted({spec.dtype for spec in (*record.inputs, *record.outputs)}))
        route = route_of(record, verdict, self._target, self._lists)
        side, unclear = outcome(verdict).side, self._open(verdict, record)
        return JudgedCall(verdict, side, error, warning, dtypes, record, unclear, route)

    def _open(self, verdict: Verdict, call: OpCall) -> tuple[Statement, ...]:
        """Return the statements that match but for their words, which the values of the call decide."""
        statements = self._lists.statements
        arguments = statements.arguments.get(call.op)
        named = (statements.by_id.get(name) for name in (*verdict.advisories, *verdict.limitations))
        return tuple(
            each
            for each in named
            if each is not None
            and not each.decides
            and each.values
            # The values of another operator that a composite calls are not those of its arguments.
            and any(_base(op) == _base(call.op) for op in each.ops)
            and holds_but_for_words(each, call, arguments)
        )


def _decide(judged: JudgedCall, call: Call) -> dict[str, bool]:
    """Return whether the words of each open statement are true for the values of a call, where that is known."""
    tensors = (t._mps.payload if is_on_mps(t) else t for t in call.inputs)
    args, kwargs = fill_arguments(call.key, tensors)
    arguments = {**dict(zip(call.route.arguments, args, strict=False)), **kwargs}
    answers = ((each.id, holds(each.values, arguments)) for each in judged.open)
    return {name: answer for name, answer in answers if answer is not None}


def _base(op: str) -> str:
    """Return the operator's name without namespace, overload and what marks a call in place or a body."""
    return op.rpartition("::")[2].partition(".")[0].strip("_").removesuffix("_impl")


def _key(call: Call) -> tuple[Any, ...]:
    """Everything that a verdict depends on; the default dtype decides what a factory makes."""
    return (call.key, call.refusal, call.inner, call.recomputed, torch.get_default_dtype())


def _kinds(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    return tuple([(is_on_mps(t), t.dtype, t.layout) for t in tensors])


def _refs(tensors: Sequence[torch.Tensor], storages: dict[int, int]) -> tuple[Ref, ...]:
    """The tensors' metadata; of their memory only what a call shares counts, which tells a view."""
    refs = []
    for tensor in tensors:
        memory = tensor._mps.memory.number if is_on_mps(tensor) else -id(tensor)
        storage = storages.setdefault(memory, len(storages) + 1)
        refs.append(Ref(0, storage, tensor._mps.spec if is_on_mps(tensor) else spec_of(tensor, "cpu")))
    return tuple(refs)
