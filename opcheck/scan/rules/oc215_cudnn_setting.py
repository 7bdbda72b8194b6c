"""OC215: settings of cuDNN and of CUDA's matrix products."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.scan.rule import Hit, Scanned, ScanRule

_PREFIXES = ("torch.backends.cudnn.", "torch.backends.cuda.")


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Assignments to attributes of these modules."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    names = [scanned.dotted(target) for target in targets]
    found = next((name for name in names if name.startswith(_PREFIXES)), "")
    if found:
        yield Hit(
            node=node,
            message=f"{found} has no effect on MPS",
            hint="it may stay; whether a run is deterministic on a Mac, it does not say",
        )


RULE = ScanRule(
    id="OC215",
    slug="cudnn_setting",
    title="A setting of cuDNN, or of CUDA's matrix products",
    severity="note",
    nodes=(ast.Assign,),
    check=check,
    page="""
**What.** `torch.backends.cudnn.benchmark`, `.deterministic`, `.enabled`, `torch.backends.cuda.matmul.allow_tf32` and others are
set.

**Why.** They are settings of libraries that a Mac's torch does not have. Setting them raises nothing and does nothing there.

**Before.**

```python
torch.backends.cudnn.deterministic = True
```

**After.**

```python
torch.backends.cudnn.deterministic = True  # CUDA only
```

**Way out.** None is needed, unless a run on the Mac was meant to be deterministic: this does not make it so.

**Evidence.** torch/backends/cudnn/__init__.py and torch/backends/cuda/__init__.py. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
