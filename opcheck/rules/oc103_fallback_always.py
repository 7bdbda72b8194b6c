"""OC103: a call that runs on the CPU whether or not the variable is set."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule, about, sentences, upgrade


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each group that always leaves for the CPU, by its registration."""
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "always"):
            yield about(
                group,
                "OC103",
                "warning",
                hint=sentences(
                    upgrade(audited, group), "it works, slower: each call copies there and back"
                ),
            )


RULE = Rule(
    id="OC103",
    slug="fallback_always",
    title="A call always runs on the CPU",
    severity="warning",
    check=check,
    page="""
**What.** The call works, but on the CPU: its arguments are copied there and its results back.

**Why.** PyTorch registers the CPU fallback for this operator by name (a short list at the end of
`MPSFallback.mm`). The variable plays no part. A kernel that leaves for the CPU by itself is
OC107.

**Before.**

```python
# torch 2.13 and older
for step in range(1000):
    left, values, right = torch.linalg.svd(weight)
```

**After.**

```python
for step in range(1000):
    if step % 100 == 0:  # where an older one will do
        left, values, right = torch.linalg.svd(weight)
```

**Way out.** The torch release that the hint names; or nothing, where the call is rare.

**Evidence.** The registration in the release's macOS wheel.

**Since.** opcheck 0.1.
""",
)
