"""OC221: an ignore that ignores nothing."""

from __future__ import annotations

from opcheck.scan.rule import ScanRule

RULE = ScanRule(
    id="OC221",
    slug="unused_ignore",
    title="An ignore that ignores nothing",
    severity="warning",
    page="""
**What.** A comment `# opcheck: ignore[OC201] reason` stands on a line that has no such finding, or names no finding that a
scan knows. Codes of the audit (OC1xx) are not looked at.

**Why.** It would silence the next finding on that line, which nobody has looked at.

**Before.**

```python
x = x.to(device)  # opcheck: ignore[OC201] moved by the launcher
```

**After.**

```python
x = x.to(device)
```

**Way out.** Remove the comment, or correct the code in it.

**Evidence.** None is needed: it is a rule of opcheck's own.

**Since.** opcheck 0.1.
""",
)
