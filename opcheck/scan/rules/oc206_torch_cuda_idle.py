"""OC206: a function of torch.cuda that does nothing without CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.scan.rule import Hit, Scanned, ScanRule
from opcheck.scan.rules.oc205_torch_cuda_raises import torch_cuda
from opcheck.scan.tables import IDLE


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Calls of what the table says does nothing."""
    name = torch_cuda(node, scanned)
    if name in IDLE:
        instead = IDLE[name]
        yield Hit(
            node=node,
            message=f"torch.cuda.{name} does nothing for MPS",
            hint=f"on MPS: {instead}" if instead else "it may stay",
        )


RULE = ScanRule(
    id="OC206",
    slug="torch_cuda_idle",
    title="A function of torch.cuda that does nothing without CUDA",
    severity="note",
    nodes=(ast.Call,),
    check=check,
    page="""
**What.** A call of `torch.cuda` that raises nothing in a torch without CUDA, and has no effect on MPS: seeds, the
allocator's cache, memory counters (which answer 0).

**Why.** The program runs, but what was meant does not happen: memory is not given back, a report says 0 bytes.

**Before.**

```python
torch.cuda.empty_cache()
```

**After.**

```python
torch.mps.empty_cache()
```

**Way out.** The function of torch.mps where there is one. `torch.manual_seed` seeds MPS, too.

**Evidence.** Each was called on a build of torch 2.13.0 without CUDA. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
