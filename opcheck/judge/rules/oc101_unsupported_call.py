"""OC101: a call that raises on the Mac, whatever is set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opcheck.judge.rules.oc105_unsupported_dtype import refused_dtype
from opcheck.judge.rules.rule import Audited, about_all, audit_rule, sentences, upgrade
from opcheck.judge.texts import AFTER_REFUSAL
from opcheck.model.records import CallGroup, Finding

_DENSE = "make it dense: .to_dense(), before it is moved to mps"
#: the dispatch key of a sparse tensor, in the dispatcher's error
_SPARSE = re.compile(r"from the '(Sparse\w*MPS)' backend")
_ON_THE_CPU = "run it on the CPU: move its inputs with .cpu()"


@audit_rule("OC101", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for each group of calls that raise, and a single finding for all that the capture refuses alike.

    Refusals by a kernel belong to other rules.
    """
    causes: dict[str, list[CallGroup]] = {}
    for group in audited.groups:
        raises = group.verdict.status == "unsupported" and audited.decided_by(group) is None
        if raises and not refused_dtype(audited, group):
            refusal = next(iter(audited.refusals(group)), "")
            causes.setdefault(refusal or f"{group.op} {group.verdict}", []).append(group)
    for groups in causes.values():
        yield about_all(groups, hint=_hint(audited, groups[0]))


def _hint(audited: Audited, group: CallGroup) -> str:
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
    has = [
        line
        for line in audited.lists.versions
        if line > audited.target.torch and audited.lists.registration(op, str(line), key)
    ]
    return f"torch {has[0]} has a {key} kernel for it" if has else ""
