"""OC107: a registered kernel that leaves for the CPU by itself."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule, about, sentences


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each group whose kernel does so."""
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "internal"):
            statement = audited.decided_by(group)
            way_out = statement.way_out.rstrip(".") if statement else ""
            links = statement.links if statement else ()
            yield about(group, "OC107", "warning", hint=sentences(way_out or _SLOWER, *links))


_SLOWER = "it works, slower: each call copies there and back"

RULE = Rule(
    id="OC107",
    slug="internal_fallback",
    title="A kernel runs this call on the CPU by itself",
    severity="warning",
    check=check,
    page="""
**What.** An MPS kernel is registered for the operator, but for this call it copies its inputs to
the CPU, computes there and copies the result back.

**Why.** The kernel has no Metal code for this dtype, shape or macOS version and says so at most
in a warning of its own. `PYTORCH_ENABLE_MPS_FALLBACK` plays no part.

**Before.**

```python
# torch 2.13: above 512 x 512 the kernel leaves for the CPU, once for each matrix
q = [torch.linalg.qr(matrix).Q for matrix in matrices]
```

**After.**

```python
# all copied at once; or torch 2.14, which computes them on the GPU
q = torch.linalg.qr(torch.stack(matrices).cpu()).Q.to("mps")
```

**Way out.** What the hint says; or a newer torch or macOS (`opcheck op` shows which); or nothing,
where the call is rare.

**Evidence.** The limitation that the finding names, with the source line or check string that it
was read from. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
