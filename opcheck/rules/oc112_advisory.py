"""OC112: a call that meets a known wrong result or crash."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule, of_statement
from opcheck.wording import plural


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each advisory met for certain; one note for those that may be met."""
    certain: set[str] = set()
    for statement, groups in audited.of_statements("advisory", _EFFECTS):
        certain.add(statement.id)
        running = [group for group in groups if audited.decided_by(group) != statement]
        if running:
            yield of_statement(statement, running, "OC112", "warning")
    perhaps = [group for group in audited.groups if {*group.verdict.advisories} - certain]
    names = sorted({name for group in perhaps for name in group.verdict.advisories} - certain)
    if names:
        yield Finding(
            rule="OC112",
            severity="note",
            message=f"{plural(len(names), 'advisory')} may concern calls of this "
            f"run, which do not tell: {', '.join(names)}",
            hint="the report's statements say when each holds",
            count=sum(group.count for group in perhaps),
        )


_EFFECTS = ("aborts", "raises", "falls_back", "wrong_result", "narrows", "warns")

RULE = Rule(
    id="OC112",
    slug="advisory",
    title="A known wrong result or crash",
    severity="warning",
    check=check,
    page="""
**What.** The call meets the conditions of a known fault of the target release: it runs, and its
result is silently wrong, or the process ends.

**Why.** The fault is in the MPS kernel or below it. The advisory says for which calls, from which
release to which, and how sure it is known where it was mended.

**Before.**

```python
# torch 2.13: adding into a slice that does not start at the beginning does nothing
totals[:, 4:].scatter_add_(1, index, values)
```

**After.**

```python
part = totals[:, 4:].clone()
part.scatter_add_(1, index, values)
totals[:, 4:] = part
```

**Way out.** What the hint says; else a release outside the advisory's span, or the CPU for this
call: `f(x.cpu()).to("mps")`. A note lists advisories whose condition depends on values, on
earlier calls or on the hardware, which a run on shapes does not have: compare with the CPU.

**Evidence.** The advisory that the finding names, with the reports and changes that it rests on.
Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
