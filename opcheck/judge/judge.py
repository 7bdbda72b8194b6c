"""Map (operator call, target) to a verdict; the function is total and depends on its arguments only."""

import functools
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.common.versions import Span, Target, Version
from opcheck.common.vocabulary import OF_PROGRAM, Effect, FallbackKind, Side, Status
from opcheck.data import messages
from opcheck.data.extensions import LIBRARIES
from opcheck.data.matching import Matches
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.data.tables import nowhere, refused_by
from opcheck.judge.texts import EXTENSIONS, MEANINGS, REASONS, REFUSALS
from opcheck.model.records import Evidence, OpCall, Verdict


class StatusOutcome(NamedTuple):
    """Describes how a status with its kind is counted, sorted and put into headlines."""

    #: native < fallback always < fallback env < unknown < unsupported
    severity: int
    #: where the call runs: ``mps``, ``cpu``, ``unknown``, or ``raises`` when nowhere.
    side: Side
    label: str


#: The table of all possible verdicts, by status and kind, from best to worst.
OUTCOMES: dict[tuple[Status, FallbackKind | None], StatusOutcome] = {
    ("native", None): StatusOutcome(0, "mps", "native"),
    ("fallback", "internal"): StatusOutcome(1, "cpu", "CPU, inside the kernel"),
    ("fallback", "always"): StatusOutcome(2, "cpu", "CPU fallback, always"),
    ("fallback", "env"): StatusOutcome(3, "cpu", "CPU fallback, with the variable"),
    ("unknown", None): StatusOutcome(4, "unknown", "unknown"),
    ("unsupported", None): StatusOutcome(5, "raises", "unsupported"),
}

_DYLIB = "torch/lib/libtorch_cpu.dylib"
_WHERE = {"python_kernel": "torch/backends/mps/__init__.py, torch/_refs/linalg/__init__.py"}

#: The dispatch key that a tensor of each sparse layout brings along.
_SPARSE_KEYS = {"sparse_coo": "SparseMPS"} | dict.fromkeys(
    ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"), "SparseCsrMPS"
)

#: Namespaces that libtorch_cpu.dylib defines. It registers kernels for MPS in ``aten`` alone, in all listed releases,
#: so that their operators come to the backend-wide fallback.
_WITHOUT_MPS = frozenset({"quantized", "_quantized", "onednn", "prepacked", "sparse"})
#: The releases that dispatch collectives by device (torch/csrc/distributed/c10d/Ops.cpp; 1.13 has one kernel for all),
#: and those whose MPSFallback.mm lets none of them fall back.
_DISPATCHES_DISTRIBUTED = Span(since=Version(2, 0))
_REFUSES_DISTRIBUTED = Span(since=Version(2, 11))


def outcome(verdict: Verdict) -> StatusOutcome:
    """Return the row of ``OUTCOMES`` for this verdict."""
    return OUTCOMES[verdict.status, verdict.kind]


def judge(call: OpCall, target: Target, lists: OpLists) -> Verdict:
    """Return what the target does with one call.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    torch = _refusing(call) if call.refusal is None else ""
    if torch:
        return refused_everywhere(call.op, call.inputs[0].dtype, torch)
    return judge_by_lists(call, target, lists)


def judge_by_lists(call: OpCall, target: Target, lists: OpLists) -> Verdict:
    """Return what the target's lists say of one call, whether or not any backend computes its dtype.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    case = _CallOnTarget(call, target, lists)
    if call.refusal is not None:
        return _judge_refused(case, *call.refusal)
    # A tensor that cannot be made stops every call, whatever is registered.
    everywhere = case.matches.on_every_operator()
    if everywhere.stops:
        return _apply(case, everywhere, Verdict(status="native", because=""))
    if _layouts(call):
        return _sparse(case)
    verdict = _BY_STATUS.get(case.resolution.status, _by_registration)(case)
    if case.resolution.status == "composite":
        return _apply(case, case.matches.without_kernel(), verdict)
    # Elsewhere no kernel runs, so that none of its limitations can be met.
    return _apply(case, case.matches, verdict) if case.resolution.status == "native" else verdict


def _refusing(call: OpCall) -> str:
    """Return the release whose CPU refuses the one dtype of all inputs; empty where none is known to."""
    dtypes = {spec.dtype for spec in call.inputs if spec.device == "mps"}
    # With ``dtype=`` the operator computes in another dtype than that of its inputs.
    if len(dtypes) != 1 or call.arguments.get("dtype") is not None:
        return ""
    (dtype,) = dtypes
    return refused_by(call.op, dtype)


def refused_everywhere(op: str, dtype: str, torch: str) -> Verdict:
    """Return the verdict of a dtype that no backend computes the operator in."""
    measured = Evidence(
        kind="measured", torch=torch, detail=REASONS["measured"].format(op=op, dtype=dtype, torch=torch)
    )
    return Verdict(status="unsupported", because=nowhere(dtype), evidence=(measured,), confidence="inferred")


def judge_all(calls: Iterable[OpCall], target: Target, lists: OpLists) -> tuple[Verdict, ...]:
    """Return a verdict for each call, in their order; calls that cannot differ are judged once.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    seen: dict[object, Verdict] = {}
    verdicts = []
    line = str(target.torch)
    has_details = functools.cache(lambda op: lists.statements.need_details(op, line))
    for call in calls:
        key = likeness(call, details=any(map(has_details, (call.op, *(call.inner or ())))))
        if key not in seen:
            seen[key] = judge(call, target, lists)
        verdicts.append(seen[key])
    return tuple(verdicts)


def certain(verdict: Verdict, library: str, target: Target) -> Verdict:
    """Return the verdict, or unknown in place of unsupported: with the target's torch the library may not call it.

    Args:
        verdict: the verdict of a call.
        library: the library that makes the call and did not get the target's answers about torch; empty: none.
        target: the target.
    """
    if not library or verdict.status != "unsupported":
        return verdict
    because = f"{library} did not see torch {target.torch} and may call it elsewhere only (OC123); {verdict.because}"
    # Without its limitations, which the rules report as errors.
    evidence = tuple(each for each in verdict.evidence if each.kind != "limitation")
    return Verdict(status="unknown", because=because, named=verdict.named, evidence=evidence)


def likeness(call: OpCall, *, details: bool) -> Hashable:
    """Return a key; calls with equal keys have the same verdict.

    Args:
        call: the call.
        details: whether more than the dtypes counts (``Statements.need_details``).
    """
    more = _details(call) if details else None
    own = (call.op, call.refusal, call.inner, call.registrations)
    return own, _layouts(call), _dtypes(call), _refusing(call), more


class _CallOnTarget:
    """A call with the data of the lists about its overload."""

    def __init__(self, call: OpCall, target: Target, lists: OpLists) -> None:
        self.call = call
        self.target = target
        self.lists = lists
        self.line = str(target.torch)
        self.release = lists.release(self.line)
        self.resolution = lists.resolve(call.op, self.line)
        #: the overload that decides: the end of the chain of forwarding registrations.
        self.last = self.resolution.chain[-1]
        self.value = self.resolution.value or "absent"

    @functools.cached_property
    def matches(self) -> Matches:
        """The statements on the operator, with whether they apply to the call."""
        return self.lists.matching(self.call, self.target)

    @property
    def where(self) -> str:
        """Return the release and the macOS version as a sentence names them."""
        return f"torch {self.release.torch}, macOS {self.target.macos}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Return the registration of every overload on the way to the deciding overload."""
        if self.resolution.extension:
            return (self.registered(self.last, self.value),)
        values = self.lists.operators(self.line)
        return tuple(self.registered(op, values[op]) for op in self.resolution.chain)

    def registered(self, op: str, value: str) -> Evidence:
        return Evidence(
            kind="registration",
            torch=self.release.torch,
            where=self.resolution.where or _WHERE.get(value, _DYLIB),
            detail=f"{op}: {value}" + (f" ({self.resolution.extension})" if self.resolution.extension else ""),
        )

    def absent(self, key: str = "", op: str = "") -> tuple[Evidence, ...]:
        """Return the evidence that an overload, the called one by default, has no registration for a key."""
        return (self.registered(op or self.call.op, f"{key} absent".strip()),)

    def reason(self, name: str, **fields: object) -> str:
        """Return a reason of texts.yaml."""
        return REASONS[name].format(torch=self.release.torch, **fields)

    @property
    def not_implemented(self) -> str:
        """Return what the Mac prints without the variable."""
        return messages.not_implemented(self.last, self.target.torch, self.release.commit)

    @property
    def named(self) -> str:
        """Return the overload that the Mac's error names, if it is not the one called."""
        return "" if self.last == self.call.op else self.last

    @property
    def meaning(self) -> str:
        head, _, detail = self.value.partition(":")
        release = self.resolution.extension or f"torch {self.release.torch}"
        text = MEANINGS[head].format(release=release, detail=detail)
        return f"it calls {self.last}: {text}" if self.named else text


#: What a composite calls for a tensor of a sparse key, and a Mac names (TensorConversions.cpp, _to_copy).
_SPARSE_BODIES = {("aten::_to_copy", "SparseMPS"): "aten::_sparse_coo_tensor_with_dims_and_tensors"}
#: Composites that call nothing for a tensor of a sparse key.
_SPARSE_ALIASES = frozenset({"aten::alias", "aten::detach"})
#: Operators that make a sparse tensor of dense ones: the requested layout, not an input's, brings the key.
_MAKE_SPARSE = frozenset({"aten::_sparse_coo_tensor_with_dims", "aten::_sparse_coo_tensor_with_dims_and_tensors"})


def _layouts(call: OpCall) -> frozenset[str]:
    if call.op in _MAKE_SPARSE:
        return frozenset({"sparse_coo"})
    specs = call.inputs or call.outputs
    return frozenset(spec.layout for spec in specs if spec.layout != "strided")


def _dtypes(call: OpCall) -> frozenset[str]:
    """Return the dtypes of the call's tensors on MPS."""
    specs = (*call.inputs, *call.outputs)
    return frozenset(spec.dtype for spec in specs if spec.device == "mps")


def _details(call: OpCall) -> Hashable:
    """Return all that a condition can test in the call; a condition cannot test which tensor it is."""
    tensors = (*call.inputs, *call.outputs)
    specs = tuple((each.argument, each.dtype, each.shape, each.stride, each.offset, each.device) for each in tensors)
    # 1, 1.0 and True are one key of a mapping, but not one value to a condition.
    arguments = tuple((name, repr(call.arguments[name])) for name in sorted(call.arguments))
    return len(call.inputs), call.recomputed, specs, arguments


def _judge_refused(case: _CallOnTarget, limitation: str, text: str) -> Verdict:
    statement = case.lists.statements.by_id.get(limitation)
    reason = statement.summary.rstrip(".") if statement else "the Mac refuses this call"
    because = REFUSALS.get(limitation) or f"{reason} ({limitation})"
    evidence = (Evidence(kind="limitation", torch=case.release.torch, detail=limitation),)
    verdict = Verdict(status="unsupported", because=because, evidence=evidence, prints=text)
    return replace(verdict, confidence="source check", limitations=(limitation,))


def sparse_key(call: OpCall) -> str | None:
    """Return the dispatch key of the inputs' layouts; None if all are strided, empty if no known key covers them."""
    keys = {_SPARSE_KEYS.get(layout, "") for layout in _layouts(call)}
    return (keys.pop() if len(keys) == 1 else "") if keys else None


def _sparse(case: _CallOnTarget) -> Verdict:
    key = sparse_key(case.call)
    op = _SPARSE_BODIES.get((case.call.op, key or ""), case.call.op)
    value = case.lists.registration(op, case.line, key) if key else None
    if value in {"kernel", "python_kernel"} or op in _SPARSE_ALIASES:
        evidence = (case.registered(op, f"{key} {value}"),)
        return Verdict(status="native", because=case.reason("sparse", key=key), evidence=evidence)
    composite = case.resolution.status == "composite" and op == case.call.op
    if key and not composite and case.resolution.status != "unknown":
        # The fallback is registered for the key MPS alone (MPSFallback.mm): the dispatcher itself raises.
        because, prints = case.reason("sparse_unsupported", key=key), messages.no_kernel_for(op, key)
        verdict = Verdict(status="unsupported", because=because, evidence=case.absent(key, op), prints=prints)
        return verdict if op == case.call.op else replace(verdict, named=op)
    because = case.reason("sparse_unknown", layouts=", ".join(sorted(_layouts(case.call))), key=key or "MPS")
    return Verdict(status="unknown", because=because, evidence=case.absent(key or "any sparse key"))


def _by_registration(case: _CallOnTarget) -> Verdict:
    """Return the verdict of a registration that decides by itself."""
    status, kind = case.resolution.status, case.resolution.kind
    assert status != "composite"  # what it calls decides
    prints = ""
    if kind == "always" or (kind == "env" and case.target.cpu_fallback):
        prints = messages.fallback_warning(case.last)
    elif case.value == "no_dense_kernel" and case.target.cpu_fallback:
        # The backend-wide fallback is reached first; it is what the variable exchanges.
        prints = messages.no_kernel_for(case.last, "CPU")
    elif kind == "env" or case.value == "no_dense_kernel":
        prints = case.not_implemented
    named = "" if status == "native" else case.named
    return Verdict(status=status, kind=kind, because=case.meaning, evidence=case.evidence, named=named, prints=prints)


@functools.lru_cache(maxsize=1 << 14)
def _judge_operator(op: str, target: Target, lists: OpLists) -> Verdict:
    """Judge a call that a composite's body makes: its operator is known, its arguments are not."""
    verdict = judge(OpCall(op=op), target, lists)
    by_id = lists.statements.by_id
    # A body passes on tensors of its own device.
    advisories = tuple(name for name in verdict.advisories if not by_id[name].needs_another_device)
    return replace(verdict, advisories=advisories)


#: A body that makes tensors of these dtypes ran off a Mac: on a Mac it takes float32, where it looks at the device
#: (get_atol_rtol in LinearAlgebra.cpp), so that the followed calls say nothing of it.
_DOUBLES = frozenset({"float64", "complex128"})


def _judge_inner(op: str, case: _CallOnTarget) -> Verdict:
    """Return the worst verdict of a body's calls of one operator, with the statements of all of them."""
    calls = [call for call in case.call.inside if call.op == op]
    doubles = (_DOUBLES & _dtypes(call) for call in calls)
    if not calls or any(dtypes - _dtypes(case.call) for dtypes in doubles):
        return _judge_operator(op, case.target, case.lists)
    verdicts = [judge(call, case.target, case.lists) for call in calls]
    worst = max(verdicts, key=lambda verdict: outcome(verdict).severity)
    others = [verdict for verdict in verdicts if verdict != worst]
    evidence = (*worst.evidence, *_statement_evidence(others))
    limitations = _sorted_ids(verdict.limitations for verdict in verdicts)
    advisories = _sorted_ids(verdict.advisories for verdict in verdicts)
    return replace(worst, evidence=evidence, limitations=limitations, advisories=advisories)


def _sorted_ids(ids: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({name for names in ids for name in names}))


def _statement_evidence(verdicts: Iterable[Verdict]) -> tuple[Evidence, ...]:
    """Return the entries that name the statements which the verdicts' calls match for certain."""
    entries = (entry for verdict in verdicts for entry in verdict.evidence)
    return tuple(dict.fromkeys(each for each in entries if each.kind in {"limitation", "advisory"}))


def _composite(case: _CallOnTarget) -> Verdict:
    inner = case.call.inner
    if not inner:
        status: Status = "unknown" if inner is None else "native"
        because, detail = (
            (REASONS["not_followed"], NOT_FOLLOWED) if inner is None else (REASONS["calls_nothing"], _CALLS_NOTHING)
        )
        evidence = (*case.evidence, Evidence(kind="capture", detail=detail))
        return Verdict(status=status, because=because, evidence=evidence, confidence="inferred")
    judged = {op: _judge_inner(op, case) for op in inner}
    # The name breaks ties, so that the order of the calls in the body does not matter.
    decider = max(judged, key=lambda op: (outcome(judged[op]).severity, op))
    worst = judged[decider]
    names = ", ".join(sorted(judged))
    called = names if worst.status == "native" else f"{decider}: {worst.because}"
    return replace(
        worst,
        because=f"it is a composite whose body calls {called}",
        evidence=(
            *case.evidence,
            Evidence(kind="capture", detail=f"its body calls {names}"),
            *worst.evidence,
            *_statement_evidence(verdict for op, verdict in judged.items() if op != decider),
        ),
        confidence="inferred",
        named="" if worst.status == "native" else worst.named or decider,
        limitations=_together(case, (verdict.limitations for verdict in judged.values())),
        advisories=_together(case, (verdict.advisories for verdict in judged.values())),
    )


def _together(case: _CallOnTarget, ids: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the statements that calls in a body may match, unless the composite itself rules them out.

    Of some calls in a body only the operator is known, so their statements say "perhaps".  One on a
    dtype that is not here is left out, and so is one whose refusal a statement on the composite
    itself answers.
    """
    dtypes = _dtypes(case.call)
    by_id = case.lists.statements.by_id
    answered = case.matches.decided_errors

    def may_match(name: str) -> bool:
        if name not in by_id:
            return True
        has_dtype = not by_id[name].dtypes or not dtypes.isdisjoint(by_id[name].dtypes)
        return has_dtype and by_id[name].error not in answered

    return tuple(filter(may_match, _sorted_ids(ids)))


#: Details of the evidence for a composite that the capture did not look into, and for a composite without calls.
NOT_FOLLOWED, _CALLS_NOTHING = "its body was not followed", "its body calls nothing"


def _judge_distributed(case: _CallOnTarget) -> Verdict:
    """Return the verdict of a collective, which has kernels for the CPU and CUDA alone."""
    if case.target.cpu_fallback and case.target.torch not in _REFUSES_DISTRIBUTED:
        because = REASONS["distributed_copied"]
        return Verdict(status="unknown", because=because, evidence=case.absent(), confidence="inferred")
    because, prints = REASONS["distributed"], case.not_implemented
    return Verdict(status="unsupported", because=because, evidence=case.absent(), prints=prints)


def _unknown(case: _CallOnTarget) -> Verdict:
    namespace = case.call.op.partition("::")[0]
    if namespace == "c10d" and case.target.torch in _DISPATCHES_DISTRIBUTED:
        return _judge_distributed(case)
    registrations = case.call.registrations
    is_own = OF_PROGRAM in registrations
    has_body = any(key.startswith("Composite") for key in registrations)
    if (namespace in _WITHOUT_MPS or is_own) and registrations[:1] == ("CPU",) and not has_body:
        because = MEANINGS["cpu_only_of_program" if is_own else "cpu_only"].format(
            release=f"torch {case.release.torch}"
        )
        prints = messages.fallback_warning(case.last) if case.target.cpu_fallback else case.not_implemented
        return Verdict(status="fallback", kind="env", because=because, evidence=case.absent(), prints=prints)
    if namespace == "aten":
        because = f"torch {case.release.torch} has no operator {case.call.op}"
    else:
        texts = (text for key, text in EXTENSIONS.items() if key in case.call.registrations)
        because = f"{_not_described(case, namespace)}; " + next(texts, "nothing is known about its kernels")
    return Verdict(status="unknown", because=because, evidence=case.absent(), confidence="inferred")


def _not_described(case: _CallOnTarget, namespace: str) -> str:
    if case.resolution.extension:
        return f"{case.resolution.extension} registers no operator {case.call.op}"
    if namespace in LIBRARIES:
        return f"the op lists have no {namespace} for torch {case.line}"
    return f"the op lists do not describe the namespace {namespace}"


# -- the curated statements that a call matches ------------------------------------------------------------------


def _apply(case: _CallOnTarget, matches: Matches, verdict: Verdict) -> Verdict:
    """Return the verdict of the registrations with the effect of statements, which never make a verdict better."""
    if not matches.possible:
        return verdict
    texts = (_fill(each, case.call) for each in matches.certain if each.error and not each.decides)
    noted = replace(
        verdict,
        limitations=_with_statements(verdict.limitations, matches, "limitation"),
        advisories=_with_statements(verdict.advisories, matches, "advisory"),
        evidence=(*verdict.evidence, *statement_evidence(matches.certain)),
        prints=verdict.prints or next(texts, ""),
    )
    decisive = matches.decisive
    if decisive is None:
        return noted
    status, kind = _DECIDED.get(decisive.effect, ("unsupported", None))
    if OUTCOMES[status, kind].severity <= outcome(verdict).severity:
        return noted
    in_test_list = any(entry.kind == "opinfo" for entry in decisive.evidence)
    return replace(
        noted,
        status=status,
        kind=kind,
        because=f"{decisive.summary.rstrip('.')} ({case.where})",
        confidence="test list" if in_test_list else "source check",
        prints=_fill(decisive, case.call),
    )


_DECIDED: dict[Effect, tuple[Status, FallbackKind | None]] = {"falls_back": ("fallback", "internal")}


def _fill(statement: Statement, call: OpCall) -> str:
    return messages.fill_text(statement.error.text, call, statement.dtypes) if statement.error else ""


def _with_statements(ids: tuple[str, ...], matches: Matches, sort: str) -> tuple[str, ...]:
    return _sorted_ids((ids, tuple(each.id for each in matches.possible if each.sort == sort)))


def statement_evidence(certain: Iterable[Statement]) -> tuple[Evidence, ...]:
    """Return the evidence of statements that certainly apply; an entry with the statement's id precedes it."""
    return tuple(
        entry
        for each in certain
        for entry in (Evidence(kind=each.sort, detail=each.id), *(source.reported_as for source in each.evidence))
    )


_BY_STATUS: dict[str, Callable[[_CallOnTarget], Verdict]] = {"composite": _composite, "unknown": _unknown}
