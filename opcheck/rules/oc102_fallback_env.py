"""OC102: a call that runs only with PYTORCH_ENABLE_MPS_FALLBACK=1."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule, about, first_text, sentences, upgrade
from opcheck.rules.ways_out import of_operator

_SET_IT = "set the variable before torch is imported: PYTORCH_ENABLE_MPS_FALLBACK=1 python ..."


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each such group: an error unless the target sets the variable."""
    is_set = audited.target.cpu_fallback
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "env"):
            way = of_operator(group.op, audited.target, first_text(group))
            yield about(
                group,
                "OC102",
                "warning" if is_set else "error",
                hint=sentences("" if is_set else _SET_IT, upgrade(audited, group), way.hint)
                or "no release in the op lists has an MPS kernel for it",
                remedy=way.line,
            )


RULE = Rule(
    id="OC102",
    slug="fallback_env",
    title="A call runs only with PYTORCH_ENABLE_MPS_FALLBACK=1, on the CPU",
    severity="error",
    check=check,
    page="""
**What.** No MPS kernel is registered for the operator. Without the variable the call raises
`NotImplementedError`; with it, the call runs on the CPU and warns once a process.

**Why.** The variable is read when torch is loaded: it chooses between two backend-wide fallbacks,
one that raises and one that copies the arguments to the CPU. Setting it after `import torch` does
nothing. Its value is read as an integer.

**Before.**

```python
import torch

eigenvalues = torch.linalg.eig(x.to("mps")).eigenvalues
```

**After.**

```python
import os

os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"  # above the first import of torch
import torch

eigenvalues = torch.linalg.eig(x.to("mps")).eigenvalues  # on the CPU
```

**Way out.** `PYTORCH_ENABLE_MPS_FALLBACK=1 python ...`, or
`os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"` above the first `import torch`; or the torch
release that the hint names. The message may name another overload than the one called (the
`.out` form that it forwards to): the finding's `prints` has the exact text.

**Evidence.** The registrations in the release's macOS wheel; `aten/src/ATen/mps/MPSFallback.mm`.

**Since.** opcheck 0.1.
""",
)
