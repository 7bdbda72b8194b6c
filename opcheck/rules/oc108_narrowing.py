"""OC108: a kernel that computes in a narrower dtype, or warns."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule, of_statement

#: A limitation with a wrong result is as grave: it is said here where it is not an advisory.
_EFFECTS = {"narrows": "warning", "wrong_result": "warning", "warns": "note"}


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each limitation that calls meet for certain and run with all the same."""
    for statement, groups in audited.of_statements("limitation", _EFFECTS):
        running = [group for group in groups if group.verdict.status != "unsupported"]
        if running:
            yield of_statement(statement, running, "OC108", _EFFECTS[statement.effect])


RULE = Rule(
    id="OC108",
    slug="narrowing",
    title="A kernel computes in a narrower dtype, or warns",
    severity="warning",
    check=check,
    page="""
**What.** The call runs on MPS, but not as it was asked: values are cast to a narrower dtype
(int64 to int32 or to float32, for instance), or an argument is not followed.

**Why.** Metal, or the kernel, lacks a form for the dtype that was given. Values that do not fit
the narrower one come out wrong; PyTorch prints at most one warning a process.

**Before.**

```python
# torch 2.8 on macOS 13.0: int64 is summed in a narrower dtype
total = counts.sum(dim=0)
```

**After.**

```python
total = counts.cpu().sum(dim=0).to("mps")  # or macOS 13.3
```

**Way out.** Cast to the narrower dtype yourself where all values fit it; else run the call on the
CPU (`f(x.cpu()).to("mps")`), or use the release that the hint names.

**Evidence.** The limitation that the finding names, with the source line or check string that it
was read from. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
