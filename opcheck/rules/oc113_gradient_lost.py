"""OC113: backward goes through an operator that has no derivative on the target."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding, GroupLocation
from opcheck.rules.rule import Audited, Rule, sentences, upgrade


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each such operator."""
    lost = [one for one in audited.trace.problems if one.kind == "gradient_lost"]
    for op in dict.fromkeys(problem.op for problem in lost):
        members = [problem for problem in lost if problem.op == op]
        group = next((group for group in audited.groups if group.op == op), None)
        yield Finding(
            rule="OC113",
            severity="warning",
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
                GroupLocation(location=problem.location, module=problem.module, count=1)
                for problem in members
            ),
            count=group.count if group else len(members),
        )


RULE = Rule(
    id="OC113",
    slug="gradient_lost",
    title="A gradient is silently lost",
    severity="warning",
    check=check,
    page="""
**What.** Backward went through an operator that has no derivative on the target. The run goes on,
a warning is all that torch prints, and what the operator was computed from gets no gradient by it.

**Why.** `aten::linalg_svd` calls other operators on every device, and these have derivatives. Up to
torch 2.13 the MPS backend registers the CPU fallback for it (`MPSFallback.mm`), and an operator with
a kernel of its own is not taken apart any more: without a derivative of its own, autograd's fallback
serves it. An extension's operator without a derivative ends the same way, on any device.

**Before.**

```python
# torch 2.13 and older: no gradient comes to x
loss = torch.linalg.svd(x).S.sum()
```

**After.**

```python
loss = torch.linalg.svd(x.cpu()).S.sum().to("mps")
```

**Way out.** A release whose operator has a derivative; or the CPU for this call:
`f(x.cpu()).to("mps")`, whose copies pass gradients on.

**Evidence.** The registrations of the release's wheel in this machine's dispatcher, whose rule is in
`aten/src/ATen/core/dispatch/OperatorEntry.cpp`; the warning is of
`torch/csrc/autograd/autograd_not_implemented_fallback.cpp`. Before torch 2.1 nothing is printed.
Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
