"""OC220: a finding is ignored, and nobody says why."""

from __future__ import annotations

from opcheck.scan.rule import ScanRule

RULE = ScanRule(
    id="OC220",
    slug="ignore_without_reason",
    title="A finding is ignored, and nobody says why",
    severity="warning",
    page="""
**What.** A comment `# opcheck: ignore[...]` has no reason behind the bracket.

**Why.** Whoever reads it next year cannot tell whether it still holds. It is honoured all the same.

**Before.**

```python
x = x.cuda()  # opcheck: ignore[OC201]
```

**After.**

```python
x = x.cuda()  # opcheck: ignore[OC201] this file runs on the cluster only
```

**Way out.** Write the reason, or remove the comment.

**Evidence.** None is needed: it is a rule of opcheck's own.

**Since.** opcheck 0.1.
""",
)
