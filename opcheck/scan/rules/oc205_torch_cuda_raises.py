"""OC205: a function of torch.cuda that raises without CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.scan.rule import Hit, Scanned, ScanRule
from opcheck.scan.tables import INSTEAD, RAISES


def torch_cuda(node: ast.AST, scanned: Scanned) -> str:
    """What comes after ``torch.cuda.`` in a call; empty: another call."""
    name = scanned.dotted(node.func) if isinstance(node, ast.Call) else ""
    rest = name.removeprefix("torch.cuda.") if name.startswith("torch.cuda.") else ""
    # The same functions, by the modules that they are written in.
    for module in ("memory.", "random.", "streams.", "graphs."):
        rest = rest.removeprefix(module)
    return rest


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of what the table says raises."""
    name = torch_cuda(node, scanned)
    if name in RAISES:
        instead = INSTEAD.get(name, "")
        yield Hit(
            node=node,
            message=f"torch.cuda.{name} fails without CUDA",
            hint=f"on MPS: {instead}"
            if instead
            else "call it only where torch.cuda.is_available()",
            prints=RAISES[name] if ": " in RAISES[name] else "",
        )


RULE = ScanRule(
    id="OC205",
    slug="torch_cuda_raises",
    title="A function of torch.cuda that raises without CUDA",
    severity="error",
    nodes=(ast.Call,),
    check=check,
    page="""
**What.** Streams, events, graphs, devices, NVTX ranges or memory counters of `torch.cuda` are used without a guard.

**Why.** In a torch without CUDA these raise. Others of `torch.cuda` do nothing there: see OC206.

**Before.**

```python
torch.cuda.synchronize()
start = torch.cuda.Event(enable_timing=True)
```

**After.**

```python
torch.accelerator.synchronize()  # torch 2.6 and newer
start = torch.Event(device, enable_timing=True)
```

**Way out.** What torch.accelerator or torch.mps has of the same; else a guard `if torch.cuda.is_available():`.

**Evidence.** Each was called on a build of torch 2.13.0 without CUDA, and the finding has what it raised. A Mac's torch
is another build of the same Python code; nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
