"""OC101: a call that raises on the Mac, whatever is set."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import CallGroup, Finding
from opcheck.rules.oc105_unsupported_dtype import refused_dtype
from opcheck.rules.rule import Audited, Rule, about, sentences, upgrade

#: What to do about a refusal, by its limitation's id.
_NEXT = {
    "device_mismatch": "move every tensor of the call to one device: .to('mps')",
    # What logs and observed runs add (opcheck/observe/log_report.py).
    "out_of_memory": "make it smaller: a smaller batch or dtype, fewer tensors alive; opcheck audit --memory estimates",
    "process_aborted": "opcheck run on that Mac names the call; the text is Apple's, and no exception can be caught",
    "gpu_error": "run it in smaller pieces; what ran after this error may hold anything",
    "shader_refused": "leave that function out of torch.compile; opcheck compile --check-metal finds such kernels",
    "setting_refused": "correct the variable: opcheck doctor says what it takes",
}
_ON_THE_CPU = "run it on the CPU: move its inputs with .cpu()"


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each group of calls that raise, refusals by a kernel apart."""
    for group in audited.groups:
        raises = group.verdict.status == "unsupported" and audited.decided_by(group) is None
        if raises and not refused_dtype(audited, group):
            yield about(group, "OC101", "error", hint=_hint(audited, group))


def _hint(audited: Audited, group: CallGroup) -> str:
    refusal = next(iter(audited.refusals(group)), None)
    if refusal is None:
        return sentences(upgrade(audited, group), _ON_THE_CPU)
    # Another release's kernel may refuse as well: that it is registered promises nothing.
    return _NEXT.get(refusal, _ON_THE_CPU)


RULE = Rule(
    id="OC101",
    slug="unsupported_call",
    title="A call raises on the Mac, even with the fallback variable",
    severity="error",
    check=check,
    page="""
**What.** The call raises on the target Mac. `PYTORCH_ENABLE_MPS_FALLBACK=1` does not help.

**Why.** Its registration leads nowhere: a stub that only raises, a function that has no MPS
version, an operator that has no CPU kernel to fall back to. Or its tensors are on two devices.
A kernel that is registered and refuses the call has findings of its own: OC105 where the dtype
is the cause, OC106 for the rest.

**Before.**

```python
# table is on the CPU: both devices in one call
y = x.to("mps") + table
```

**After.**

```python
y = x.to("mps") + table.to("mps")
```

**Way out.** Use the torch release that the hint names; or move the inputs of the call to the CPU
and its result back (`f(x.cpu()).to("mps")`); or write the step with other operators.

**Evidence.** The registration in the release's macOS wheel.

**Since.** opcheck 0.1.
""",
)
