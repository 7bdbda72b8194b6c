"""OC122: a composite whose body the capture did not look into."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge import NOT_FOLLOWED
from opcheck.model import Finding, Verdict
from opcheck.rules.rule import Audited, Rule, about


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each such group."""
    for group in audited.groups:
        if not_followed(group.verdict):
            yield about(
                group,
                "OC122",
                "warning",
                hint="capture with --tracer dispatch, which follows composites",
            )


def not_followed(verdict: Verdict) -> bool:
    """Whether the verdict is unknown for want of a look into a composite's body."""
    return verdict.status == "unknown" and any(
        entry.detail == NOT_FOLLOWED for entry in verdict.evidence
    )


RULE = Rule(
    id="OC122",
    slug="composite_not_followed",
    title="A composite operator was not looked into",
    severity="warning",
    check=check,
    page="""
**What.** The operator is a composite: it has no kernel of its own and calls others, which decide.
The capture did not see them.

**Why.** The tracer stopped above the composite, or the body cannot be run without data.

**Before.**

```sh
opcheck audit model.py:Net --tracer export
```

**After.**

```sh
opcheck audit model.py:Net --tracer dispatch
```

**Way out.** Capture with `--tracer dispatch`.

**Evidence.** The registration in the release's macOS wheel, and the captured run.

**Since.** opcheck 0.1.
""",
)
