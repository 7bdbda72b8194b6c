"""OC106: a registered kernel that refuses a call for its shape, an argument or the macOS version."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.oc105_unsupported_dtype import refused_dtype
from opcheck.rules.rule import Audited, Rule, about, first_text, sentences
from opcheck.rules.ways_out import of_operator


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each group that a curated statement decides, dtype refusals apart."""
    for group in audited.groups:
        if group.verdict.status != "unsupported" or refused_dtype(audited, group):
            continue
        statement = audited.decided_by(group)
        if statement is not None:
            ends = "the process ends, no exception is raised" * (statement.effect == "aborts")
            way = of_operator(group.op, audited.target, first_text(group))
            hint = sentences(ends, statement.way_out.rstrip("."), way.hint, *statement.links)
            yield about(group, "OC106", "error", hint=hint or _ON_THE_CPU, remedy=way.line)


_ON_THE_CPU = "run it on the CPU: move its inputs with .cpu()"

RULE = Rule(
    id="OC106",
    slug="limitation",
    title="A registered kernel refuses the call",
    severity="error",
    check=check,
    page="""
**What.** An MPS kernel is registered for the operator, and refuses this call: its shape, one of
its arguments, or the macOS version. It raises, or ends the process.

**Why.** The kernel checks its arguments, or Metal does. `PYTORCH_ENABLE_MPS_FALLBACK=1` does not
help: the fallback is used only where *no* kernel is registered.

**Before.**

```python
self.encoder = nn.LSTM(80, 512, proj_size=128)
```

**After.**

```python
self.encoder = nn.LSTM(80, 512)
self.project = nn.Linear(512, 128)  # not the same network: it is trained anew
```

**Way out.** What the hint says; else the torch release or the macOS version that no longer has
the limit (`opcheck op` shows them); or move the inputs of this call to the CPU and its result
back: `f(x.cpu()).to("mps")`.

**Evidence.** The limitation that the finding names, with the source line, check string or report
that it was read from. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
