"""Calls that run, but on the CPU, in a narrower dtype or with wrong results, and calls that raise or are unknown."""

import re
from collections.abc import Iterator, Sequence

from opcheck.common.text import filesize, plural
from opcheck.common.vocabulary import EFFECTS, Effect, Severity
from opcheck.judge.judge import NOT_FOLLOWED
from opcheck.judge.remedies import for_kind, operator_way_out
from opcheck.judge.rules.rule import (
    Audited,
    about_all,
    audit_rule,
    finding,
    first_text,
    group_by_cause,
    make_finding,
    sentences,
    statement_finding,
    upgrade,
)
from opcheck.judge.texts import AFTER_REFUSAL
from opcheck.model.records import CallGroup, Finding, Verdict, WrongNumbers, WrongSample

_SET_IT = "set the variable before torch is imported: PYTORCH_ENABLE_MPS_FALLBACK=1 python ..."
_NO_RELEASE = "no release in the op lists has an MPS kernel for it"
_SLOWER = "it works, slower: each call copies there and back"
#: A limitation with a wrong result is as grave; OC108 reports it if no advisory does.
_NARROWS: dict[Effect, Severity] = {"narrows": "warning", "wrong_result": "warning", "warns": "note"}


def _fallbacks(audited: Audited, kind: str) -> Iterator[CallGroup]:
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", kind):
            yield group


@audit_rule("OC102", "error")
def find_variable_fallbacks(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each group that runs only with the variable: an error unless the target sets it."""
    is_set = audited.target.cpu_fallback
    for group in _fallbacks(audited, "env"):
        way = operator_way_out(group.op, audited.target, first_text(group))
        hint = sentences("" if is_set else _SET_IT, upgrade(audited, group), way.hint) or _NO_RELEASE
        yield make_finding(group, "warning" if is_set else "error", hint=hint, remedy=way.line)


@audit_rule("OC103", "warning")
def find_constant_fallbacks(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each group whose registration always sends it to the CPU."""
    for group in _fallbacks(audited, "always"):
        yield make_finding(group, hint=sentences(upgrade(audited, group), _SLOWER))


@audit_rule("OC107", "warning")
def find_internal_fallbacks(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each statement about a kernel that uses the CPU, and for each group that none decides."""

    def cause(group: CallGroup) -> str:
        statement = audited.decided_by(group)
        return statement.id if statement else f"{group.op} {group.verdict}"

    for groups in group_by_cause(_fallbacks(audited, "internal"), cause):
        statement = audited.decided_by(groups[0])
        way_out, links = (statement.way_out.rstrip("."), statement.links) if statement else ("", ())
        yield about_all(groups, hint=sentences(way_out or _SLOWER, *links))


@audit_rule("OC108", "warning")
def find_narrowing(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each limitation that calls match for certain and run in spite of."""
    for statement, groups in audited.groups_by_statement("limitation", _NARROWS):
        running = [group for group in groups if group.verdict.status != "unsupported"]
        if running:
            yield statement_finding(statement, running, _NARROWS[statement.effect])


@audit_rule("OC110", "note")
def find_transfers(audited: Audited) -> Iterator[Finding]:
    """Yield one finding with the totals of the CPU fallbacks' copies, if anything is copied."""
    moved = audited.partition
    if not moved.transfers_to_cpu + moved.transfers_to_mps:
        return
    regions = [region for region in moved.regions if region.side == "cpu"]
    there = f"{plural(moved.transfers_to_cpu, 'copy')} to the CPU ({filesize(moved.bytes_to_cpu)})"
    back = f"{moved.transfers_to_mps:,} back ({filesize(moved.bytes_to_mps)})"
    where = f" in {plural(len(regions), 'region')}" if regions else ""
    yield finding(
        message=f"the CPU fallbacks make {there} and {back}{where}",
        hint="fallback calls in a row share no copies: one .cpu() before them and one .to('mps') after them copy less",
        count=sum(region.calls for region in regions),
    )


@audit_rule("OC112", "warning")
def find_advisories(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each advisory that matches for certain; the report's statements list the others.

    Where kernels computed what an advisory states, their finding (OC151) has it.
    """
    computed = {name for run in audited.numbers for line in run.wrong for name in line.statements}
    for statement, groups in audited.groups_by_statement("advisory", EFFECTS):
        running = [group for group in groups if audited.decided_by(group) != statement]
        if running and statement.id not in computed:
            yield statement_finding(statement, running, "warning")


@audit_rule("OC150", "warning")
def find_lost_digits(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for the first call that loses digits by itself, and for each overflow or NaN."""
    for run in audited.precision:
        if line := run.divergence:
            errors = f"relative error {float(line.local):.1e}, from inputs that are off by {float(line.inherited):.1e}"
            message = f"{line.op}: in {run.dtype} it loses digits by itself: {errors}"
            yield finding(message=message, hint=_hint_digits(line.op, audited), op=line.op, locations=(line.place,))
        for event in (event for event in run.events if event.kind != "flips"):
            message = f"{event.op}: {event.kind} in {run.dtype}, in {event.elements:,} of {event.of:,} elements"
            hint = "scale the inputs, or keep this part in float32"
            yield finding(message=message, hint=hint, op=event.op, locations=(event.place,))


def _hint_digits(op: str, audited: Audited) -> str:
    """Return a hint that names the page of the operator's remedy, if there is such a page."""
    remedy = for_kind(op.partition(".")[0], audited.target)
    instead = f"another way (opcheck explain {remedy.id})" if remedy else "another way"
    return f"compute this part {instead}, or keep it on the CPU in float64 (opcheck explain keep_on_cpu)"


# -- Results that the release's own Metal kernels compute outside of the CPU's band, on the run's own values --


@audit_rule("OC151", "error")
def find_wrong_numbers(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each line and kernel with wrong results, the furthest off first."""
    for line in (line for run in audited.numbers for line in run.wrong):
        worst = "" if line.worst == line.smallest else f"; the worst: {_example(line.worst)}"
        count = f"{line.elements:,} of {plural(line.compared, 'result')} in {line.dtype}"
        verb = "is" if line.elements == 1 else "are"
        message = f"{line.op}: {count} {verb} wrong: {_example(line.smallest)}{worst}"
        hint = _hint(line, audited)
        yield finding(message=message, hint=hint, op=line.op, count=line.calls, locations=(line.place,))


def _example(sample: WrongSample) -> str:
    return f"{', '.join(sample.operands)} gives {sample.result}, right {sample.expected}"


def _hint(line: WrongNumbers, audited: Audited) -> str:
    by_id = audited.lists.statements.by_id
    stated = (by_id[name] for name in line.statements if name in by_id)
    ways = [f"{each.id}: {each.way_out.rstrip('.')}" for each in stated]
    mended = f"the kernel of torch {line.mended} is right here" if line.mended else _NOT_MENDED
    return sentences(*ways, mended)


_NOT_MENDED = "no later release that is kept here is right: compute it on the CPU"


# -- Calls that raise on the Mac, and calls whose operator the lists do not describe --


_ON_THE_CPU = "run it on the CPU: move its inputs with .cpu()"

# -- OC101: a call that raises, whatever is set ----------------------------------------------------

_DENSE = "make it dense: .to_dense(), before it is moved to mps"
#: the dispatch key of a sparse tensor, in the dispatcher's error
_SPARSE = re.compile(r"from the '(Sparse\w*MPS)' backend")


@audit_rule("OC101", "error")
def find_unsupported_calls(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for each group of calls that raise, and a single finding for all that the capture refuses alike.

    Refusals by a kernel belong to other rules.
    """

    def cause(group: CallGroup) -> str:
        raises = group.verdict.status == "unsupported" and audited.decided_by(group) is None
        if not raises or refused_dtype(audited, group):
            return ""
        return next(iter(audited.refusals(group)), f"{group.op} {group.verdict}")

    for groups in group_by_cause(audited.groups, cause):
        yield about_all(groups, hint=_hint_unsupported(audited, groups[0]))


def _hint_unsupported(audited: Audited, group: CallGroup) -> str:
    sparse = _SPARSE.search(group.verdict.prints)
    if sparse:
        return sentences(_sparse_kernel(audited, group, sparse[1]), _DENSE)
    refusal = next(iter(audited.refusals(group)), None)
    if any(entry.kind == "measured" for entry in group.verdict.evidence):
        name = group.op.removeprefix("aten::").partition(".")[0]
        return f"cast its inputs first, on any device; opcheck op {name} lists the dtypes that it takes"
    if refusal is None:
        return sentences(upgrade(audited, group), _ON_THE_CPU)
    # Another release's kernel may refuse as well: that it is registered promises nothing.
    return AFTER_REFUSAL.get(refusal, _ON_THE_CPU)


def _sparse_kernel(audited: Audited, group: CallGroup, key: str) -> str:
    """Return which newer release has a kernel for sparse tensors."""
    op = group.verdict.named or group.op
    newer = (line for line in audited.lists.versions if line > audited.target.torch)
    has = next((line for line in newer if audited.lists.registration(op, str(line), key)), None)
    return f"torch {has} has a {key} kernel for it" if has else ""


# -- OC104: an operator that the lists do not describe ---------------------------------------------


@audit_rule("OC104", "warning")
def find_unknown_operators(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each unknown group, except composites that were not followed."""
    for group in audited.groups:
        if group.verdict.status == "unknown" and not _is_not_followed(group.verdict):
            yield make_finding(group, hint=_hint_unknown(audited, group))


def _hint_unknown(audited: Audited, group: CallGroup) -> str:
    op = group.verdict.named or group.op
    if any(audited.trace.differing_library(place.location) for place in group.locations):
        return f"install torch {audited.target.torch} here and audit again"
    if group.verdict.because.startswith("an input is "):
        # That a release has a kernel for dense tensors promises nothing for its layout.
        return f"make its inputs dense: .to_dense(); or {_ON_THE_CPU}"
    if not op.startswith("aten::"):
        return f"register an MPS kernel for it, or {_ON_THE_CPU}"
    if _describes(audited, op, str(audited.target.torch)):
        # A run on the emulated Mac could not compute the call; the lists know the operator.
        return f"try this call on a Mac; or {_ON_THE_CPU}"
    has = [str(line) for line in audited.lists.versions if _describes(audited, op, str(line))]
    return sentences(f"torch {', '.join(has)} has it" if has else "no release in the op lists has it", _ON_THE_CPU)


def _describes(audited: Audited, op: str, line: str) -> bool:
    return audited.lists.resolve(op, line).status != "unknown"


# -- OC105: a dtype that MPS, or the kernel, refuses -----------------------------------------------

#: What to cast to instead, where there is one answer.
_CASTS = {"float64": "float32", "complex128": "complex64", "bfloat16": "float16"}


@audit_rule("OC105", "error")
def find_refused_dtypes(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each refused dtype, because it affects every operator that the dtype flows through."""
    # A finding at the dtype's origin (OC140 to OC142) covers its limitations.
    failing = (audited.verdicts[index] for origin in audited.origins for index in origin.failing)
    covered = {entry.detail for verdict in failing for entry in verdict.evidence if entry.kind == "limitation"}

    def cause(group: CallGroup) -> str:
        name = refused_dtype(audited, group)
        return "" if name in covered else name

    for groups in group_by_cause(audited.groups, cause):
        yield about_all(groups, hint=_hint_dtype(audited, groups))


def refused_dtype(audited: Audited, group: CallGroup) -> str:
    """Return the id of the limitation whose dtype makes the group raise; empty if there is none."""
    if group.verdict.status != "unsupported":
        return ""
    statement = audited.decided_by(group)
    if statement is None:
        # A refusal of the capture: its id alone shows that it is about a dtype.
        texts = (name for name in audited.refusals(group) if name.startswith("dtype-"))
        return next(texts, "")
    about_dtype = statement.id.startswith("dtype-") or (statement.dtypes and not statement.condition)
    return statement.id if about_dtype else ""


def _hint_dtype(audited: Audited, groups: Sequence[CallGroup]) -> str:
    statement = audited.decided_by(groups[0])
    if statement is not None and statement.way_out and not statement.id.startswith("dtype-"):
        return statement.way_out.rstrip(".")
    dtypes = sorted({name for group in groups for name in group.dtypes})
    casts = [f"{name} -> {_CASTS[name]}" for name in dtypes if name in _CASTS]
    return "cast before the move to MPS" + (f": {', '.join(casts)}" if casts else "")


# -- OC106: a registered kernel that refuses a call for its shape, an argument or the macOS version --


@audit_rule("OC106", "error")
def find_limitations(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each curated statement that decides calls, except refused dtypes."""

    def cause(group: CallGroup) -> str:
        if group.verdict.status != "unsupported" or refused_dtype(audited, group):
            return ""
        statement = audited.decided_by(group)
        return statement.id if statement else ""

    for groups in group_by_cause(audited.groups, cause):
        statement = audited.lists.statements.by_id[cause(groups[0])]
        ends = "the process ends, no exception is raised" * (statement.effect == "aborts")
        way = operator_way_out(groups[0].op, audited.target, first_text(groups[0]))
        hint = sentences(statement.way_out.rstrip("."), ends, way.hint, *statement.links)
        yield about_all(groups, hint=hint or _ON_THE_CPU, remedy=way.line)


# -- OC122: a composite whose body the capture did not look into -----------------------------------


@audit_rule("OC122", "warning")
def find_opaque_composites(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each such group."""
    for group in audited.groups:
        if _is_not_followed(group.verdict):
            yield make_finding(group, hint="capture with --tracer dispatch, which follows composites")


def _is_not_followed(verdict: Verdict) -> bool:
    """Return whether the verdict is unknown because the capture did not follow a composite's body."""
    return verdict.status == "unknown" and any(entry.detail == NOT_FOLLOWED for entry in verdict.evidence)
