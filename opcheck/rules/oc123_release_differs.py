"""OC123: the torch that captured is not the torch that is asked about."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for all differences that the capture met."""
    trace = audited.trace
    if trace.differences:
        yield Finding(
            rule="OC123",
            severity="note",
            message="; ".join(trace.differences),
            hint=f"install torch {audited.target.torch} here and audit again "
            f"(captured with {trace.installed_torch or 'another release'})",
            count=len(trace.differences),
        )


RULE = Rule(
    id="OC123",
    slug="release_differs",
    title="The installed torch and the target differ here",
    severity="note",
    check=check,
    page="""
**What.** The model ran on the torch that is installed, under the registrations of the target
release. Here the two differ in a way that may change which operators are called.

**Why.** One of them lacks an operator, or code branches on the version.

**Before.**

```sh
pip install torch==2.13.0
opcheck audit model.py:Net --torch 2.15
```

**After.**

```sh
pip install torch==2.15.0
opcheck audit model.py:Net --torch 2.15
```

**Way out.** Install the target release (any build, no Mac needed) and audit again.

**Evidence.** The lists of both releases.

**Since.** opcheck 0.1.
""",
)
