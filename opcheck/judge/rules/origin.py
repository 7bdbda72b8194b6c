"""Make the findings about origins of dtypes: one finding for each origin, however many of its calls fail."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.data.messages import filled
from opcheck.judge import dtype_flow, target_change
from opcheck.judge.rules import dtype_origins
from opcheck.judge.rules.remediation import WayOut, way_out
from opcheck.judge.rules.rule import AuditCheck, Audited, finding, sentences
from opcheck.judge.texts import INSTEAD
from opcheck.model.records import BY_NAME, Finding, GroupLocation, OpCall, Verdict

_NO_HELP = "PYTORCH_ENABLE_MPS_FALLBACK=1 does not help: it is for operators without a kernel"


def check_for(*traits: str) -> AuditCheck:
    """Return a check that reports each origin of these traits that reaches a call which fails or narrows."""

    def check(audited: Audited) -> Iterator[Finding]:
        return (_finding(audited, origin) for origin in audited.origins if origin.trait in traits)

    return check


def _finding(audited: Audited, origin: dtype_flow.Origin) -> Finding:
    first = audited.trace.calls[origin.failing[0]]
    verdict = audited.verdicts[origin.failing[0]]
    way = _way_out(audited, origin, first)
    hint = sentences(
        _cast(origin),
        way.hint,
        _upgrade(audited, origin),
        _NO_HELP if origin.effect == "raises" and origin.certain else "",
    )
    return finding(
        severity="error" if origin.effect == "raises" and origin.certain else "warning",
        message=f"{origin.dtype} begins here: {dtype_origins.describe(origin)}{_names(origin)}; "
        f"{_what_fails(origin, first)}",
        hint=hint,
        op=first.op,
        prints=verdict.prints or _would_print(audited, verdict, origin),
        locations=_places(origin, first),
        count=max(1, origin.calls),
        remedy=dtype_origins.rewritten(origin) or way.line,
    )


def _way_out(audited: Audited, origin: dtype_flow.Origin, first: OpCall) -> WayOut:
    """Return the tested remedy for how the dtype began, or else for the call that fails."""
    base = first.op.removeprefix("aten::").partition(".")[0]
    api = origin.api.rpartition(".")[2] if "::" not in origin.api else origin.api.partition(".")[0]
    made = api if "::" in api else f"aten::{api}"
    kinds = [f"{origin.dtype}/{origin.how}"]
    if origin.trait == "complex":
        kinds += [f"complex/{base.removesuffix('_')}", made, f"complex/{origin.how}"]
    kinds.append(f"{origin.trait}/{origin.how}")
    text = first.location.text if first.location else ""
    return way_out(kinds, audited.target, text)


def _would_print(audited: Audited, verdict: Verdict, origin: dtype_flow.Origin) -> str:
    """Return the error text of a statement that may apply."""
    statements = audited.lists.statements.by_id
    possible = dtype_flow.speaking(verdict.limitations, BY_NAME[origin.trait], statements)
    return next((filled(statement.error.text) for statement in possible if statement.error), "")


def _places(origin: dtype_flow.Origin, first: OpCall) -> tuple[GroupLocation, ...]:
    """Return the origin's line, then the line of the first call that fails, if it is another."""
    begins = GroupLocation.at(origin.location, module="", count=1)
    moved = first.phase == "move"
    fails = GroupLocation.at(
        first.location,
        module="" if moved else first.module,
        count=1 if moved else len(origin.failing),
        phase=first.phase,
    )
    if origin.location is None:
        return (fails,)
    if fails.location is None or str(fails.location) == str(begins.location):
        return (begins,)
    return (begins, fails)


def _names(origin: dtype_flow.Origin) -> str:
    shown = ", ".join(origin.names[:3])
    more = f" and {len(origin.names) - 3:,} more" if len(origin.names) > 3 else ""
    return f" ({shown}{more})" if shown else ""


def _what_fails(origin: dtype_flow.Origin, first: OpCall) -> str:
    verb = _VERBS[origin.effect, origin.certain]
    if first.phase == "move":
        return f"its move to mps {verb}"
    at = "in the backward of" if first.phase == "backward" else "at"
    where = f" {at} {first.location}" if first.location else ""
    passed = origin.calls - len(origin.failing)
    taken = f"; {plural(passed, 'call')} that it passes can take it" if passed > 0 else ""
    return f"the first call that {verb} is {first.op}{where}{taken}"


_VERBS = {
    ("raises", True): "fails",
    ("raises", False): "may fail",
    ("narrows", True): "narrows it",
    ("narrows", False): "may narrow it",
}


def _cast(origin: dtype_flow.Origin) -> str:
    instead = INSTEAD.get(origin.dtype)
    return f"make it {instead} where it begins" if instead else ""


def _upgrade(audited: Audited, origin: dtype_flow.Origin) -> str:
    trait = BY_NAME[origin.trait]
    statements = audited.lists.statements.by_id

    def accepts(verdict: Verdict) -> bool:
        # An advised target must take the dtype for certain: a statement that may refuse it excludes the target.
        return target_change.runs(verdict) and not dtype_flow.effect(
            verdict, trait, statements, certain=False
        )

    calls = [audited.trace.calls[index] for index in origin.failing]
    change = target_change.smallest_change(calls, audited.target, audited.lists, accepts)
    return f"{change} takes it" if change else ""
