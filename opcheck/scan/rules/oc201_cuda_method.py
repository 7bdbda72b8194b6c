"""OC201: .cuda() on a tensor or a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.scan.rule import Hit, Scanned, ScanRule, method


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of a method ``cuda`` of anything that is not a module of another library."""
    if not isinstance(node, ast.Call) or method(node) != "cuda":
        return
    if isinstance(node.func, ast.Attribute) and scanned.dotted(node.func.value):
        return
    yield Hit(
        node=node,
        message=".cuda() moves to CUDA, which a Mac does not have",
        hint="take the device as a value: .to(device)",
        prints="AssertionError: Torch not compiled with CUDA enabled",
    )


RULE = ScanRule(
    id="OC201",
    slug="cuda_method",
    title=".cuda() on a tensor or a module",
    severity="error",
    nodes=(ast.Call,),
    check=check,
    page="""
**What.** A tensor or a module is moved with `.cuda()`, and no guard around the line keeps a Mac from it.

**Why.** torch for macOS is built without CUDA. The call raises
`AssertionError: Torch not compiled with CUDA enabled`, whatever `PYTORCH_ENABLE_MPS_FALLBACK` says.

**Before.**

```python
model = Model().cuda()
```

**After.**

```python
device = torch.accelerator.current_accelerator() or torch.device("cpu")  # torch 2.6 and newer
model = Model().to(device)
```

**Way out.** Choose the device in one place and hand it on; make new tensors with `device=x.device`.

**Evidence.** torch/cuda/__init__.py, `_lazy_init`; raised so by a build of torch 2.13.0 without CUDA. Nothing was
tried on a Mac.

**Since.** opcheck 0.1.
""",
)
