"""OC105: a dtype that MPS, or the kernel, refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opcheck.judge.rules.rule import Audited, about_all, audit_rule
from opcheck.model.records import CallGroup, Finding

#: What to cast to instead, where there is one answer.
_INSTEAD = {"float64": "float32", "complex128": "complex64", "bfloat16": "float16"}


@audit_rule("OC105", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each refused dtype, because it affects every operator that the dtype flows through."""
    refused: dict[str, list[CallGroup]] = {}
    texts = _limitations_with_origin(audited)
    for group in audited.groups:
        name = refused_dtype(audited, group)
        if name and name not in texts:
            refused.setdefault(name, []).append(group)
    for groups in refused.values():
        yield about_all(groups, hint=_hint(audited, groups))


def _limitations_with_origin(audited: Audited) -> frozenset[str]:
    """Return the limitations that a finding at the dtype's origin covers (OC140 to OC142)."""
    return frozenset(
        entry.detail
        for origin in audited.origins
        for index in origin.failing
        for entry in audited.verdicts[index].evidence
        if entry.kind == "limitation"
    )


def refused_dtype(audited: Audited, group: CallGroup) -> str:
    """Return the id of the limitation whose dtype makes the group raise; empty if there is none."""
    if group.verdict.status != "unsupported":
        return ""
    statement = audited.decided_by(group)
    if statement is None:
        # A refusal of the capture: its id alone shows that it is about a dtype.
        texts = (name for name in audited.refusals(group) if name.startswith("dtype-"))
        return next(texts, "")
    about_dtype = statement.id.startswith("dtype-") or (
        statement.dtypes and not statement.condition
    )
    return statement.id if about_dtype else ""


def _hint(audited: Audited, groups: Sequence[CallGroup]) -> str:
    statement = audited.decided_by(groups[0])
    if statement is not None and statement.way_out and not statement.id.startswith("dtype-"):
        return statement.way_out.rstrip(".")
    dtypes = sorted({name for group in groups for name in group.dtypes})
    casts = [f"{name} -> {_INSTEAD[name]}" for name in dtypes if name in _INSTEAD]
    return "cast before the move to MPS" + (f": {', '.join(casts)}" if casts else "")
