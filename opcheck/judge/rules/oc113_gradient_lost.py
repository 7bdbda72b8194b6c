"""OC113: backward goes through an operator that has no derivative on the target."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, audit_rule, finding, sentences, upgrade
from opcheck.model.records import Finding, GroupLocation


@audit_rule("OC113", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each such operator."""
    lost = [problem for problem in audited.trace.problems if problem.kind == "gradient_lost"]
    for op in dict.fromkeys(problem.op for problem in lost):
        members = [problem for problem in lost if problem.op == op]
        group = next((group for group in audited.groups if group.op == op), None)
        yield finding(
            message=f"{op}: no gradient passes back through it on MPS, and nothing is raised: "
            "what it was computed from is not trained by it",
            hint=sentences(
                upgrade(audited, group) if group and op.startswith("aten::") else "",
                "run it on the CPU, where it has a derivative: f(x.cpu()).to('mps')"
                if op.startswith("aten::")
                else "give it a derivative: torch.library.register_autograd",
            ),
            op=op,
            prints=members[0].message,
            locations=tuple(
                GroupLocation.at(problem.location, module=problem.module, count=1)
                for problem in members
            ),
            count=group.count if group else len(members),
        )
