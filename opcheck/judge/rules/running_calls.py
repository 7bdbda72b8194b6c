"""Calls that run, but on the CPU, in a narrower dtype, with a known wrong result, or with fewer digits."""

from collections.abc import Iterator

from opcheck.common.text import filesize, plural
from opcheck.common.vocabulary import Effect, Severity
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
from opcheck.model.records import CallGroup, Finding

_SET_IT = "set the variable before torch is imported: PYTORCH_ENABLE_MPS_FALLBACK=1 python ..."
_SLOWER = "it works, slower: each call copies there and back"
#: A limitation with a wrong result is as grave; OC108 reports it if no advisory does.
_NARROWS: dict[Effect, Severity] = {
    "narrows": "warning",
    "wrong_result": "warning",
    "warns": "note",
}
_ADVISED = ("aborts", "raises", "falls_back", "wrong_result", "narrows", "warns")


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
        yield make_finding(
            group,
            "warning" if is_set else "error",
            hint=sentences("" if is_set else _SET_IT, upgrade(audited, group), way.hint)
            or "no release in the op lists has an MPS kernel for it",
            remedy=way.line,
        )


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
        way_out = statement.way_out.rstrip(".") if statement else ""
        links = statement.links if statement else ()
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
    yield finding(
        message=f"the CPU fallbacks make {plural(moved.transfers_to_cpu, 'copy')} to the CPU "
        f"({filesize(moved.bytes_to_cpu)}) and {moved.transfers_to_mps:,} back "
        f"({filesize(moved.bytes_to_mps)})"
        + (f" in {plural(len(regions), 'region')}" if regions else ""),
        hint="fallback calls in a row share no copies: "
        "one .cpu() before them and one .to('mps') after them copy less",
        count=sum(region.calls for region in regions),
    )


@audit_rule("OC112", "warning")
def find_advisories(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each advisory that matches for certain; the report's statements list the others.

    Where kernels computed what an advisory states, their finding (OC151) has it.
    """
    computed = {name for run in audited.numbers for line in run.wrong for name in line.statements}
    for statement, groups in audited.groups_by_statement("advisory", _ADVISED):
        running = [group for group in groups if audited.decided_by(group) != statement]
        if running and statement.id not in computed:
            yield statement_finding(statement, running, "warning")


@audit_rule("OC150", "warning")
def find_lost_digits(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for the first call that loses digits by itself, and for each overflow or NaN."""
    for run in audited.precision:
        if run.divergence is not None:
            line = run.divergence
            yield finding(
                message=f"{line.op}: in {run.dtype} it loses digits by itself: relative error "
                f"{float(line.local):.1e}, from inputs that are off by {float(line.inherited):.1e}",
                hint=_hint_digits(line.op, audited),
                op=line.op,
                locations=(line.place,),
            )
        for event in run.events:
            if event.kind != "flips":
                yield finding(
                    message=f"{event.op}: {event.kind} in {run.dtype}, in {event.elements:,} of "
                    f"{event.of:,} elements",
                    hint="scale the inputs, or keep this part in float32",
                    op=event.op,
                    locations=(event.place,),
                )


def _hint_digits(op: str, audited: Audited) -> str:
    """Return a hint that names the page of the operator's remedy, if there is such a page."""
    remedy = for_kind(op.partition(".")[0], audited.target)
    instead = f"another way (opcheck explain {remedy.id})" if remedy else "another way"
    return f"compute this part {instead}, or keep it on the CPU in float64 (opcheck explain keep_on_cpu)"
