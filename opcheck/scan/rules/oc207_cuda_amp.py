"""OC207: mixed precision for CUDA only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.scan.rule import Hit, Scanned, ScanRule, argument

_AUTOCAST = {"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"}
_SCALER = {"torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler", "torch.GradScaler"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Autocast and GradScaler of CUDA, unless they are turned off."""
    if not isinstance(node, ast.Call):
        return
    name = scanned.dotted(node.func)
    last = name.rpartition(".")[2]
    if last not in {"autocast", "GradScaler"} or not name.startswith("torch."):
        return
    enabled = argument(node, None, "enabled")
    if enabled is not None and scanned.mac.truth(enabled) is False:
        return
    if name.startswith("torch.cuda.amp."):
        what = f"torch.cuda.amp.{last}"
    elif name in _AUTOCAST and scanned.mac.cuda(argument(node, 0, "device_type")):
        what = 'torch.autocast("cuda")'
    elif name in _SCALER and _scales_cuda(node, scanned):
        what = 'torch.amp.GradScaler("cuda")'
    else:
        return
    yield Hit(
        node=node,
        message=f"{what} turns itself off without CUDA: on a Mac nothing is cast or scaled",
        hint=f'torch.amp.{last}("mps"), or with the type of the device that was chosen',
    )


def _scales_cuda(node: ast.Call, scanned: Scanned) -> bool:
    device = argument(node, 0, "device")
    return device is None or scanned.mac.cuda(device) is not None


RULE = ScanRule(
    id="OC207",
    slug="cuda_amp",
    title="Mixed precision for CUDA only",
    severity="warning",
    nodes=(ast.Call,),
    check=check,
    page="""
**What.** `torch.cuda.amp.autocast`, `torch.cuda.amp.GradScaler`, `torch.autocast("cuda")` or
`torch.amp.GradScaler("cuda")`, which is also what `GradScaler()` without a device means.

**Why.** Without CUDA they warn and turn themselves off. The program runs, in float32: slower, and in more memory than
its author measured.

**Before.**

```python
with torch.cuda.amp.autocast():
    loss = model(x)
```

**After.**

```python
with torch.autocast(x.device.type, dtype=torch.float16):  # MPS: torch 2.5 and newer
    loss = model(x)
```

**Way out.** Give the type of the device. bfloat16 needs macOS 14 and torch 2.6, and no GradScaler; the scaler has its kernels on
MPS since torch 2.8.

**Evidence.** torch/amp/autocast_mode.py and torch/amp/grad_scaler.py: the warning that CUDA is not available, and what is
disabled with it. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
