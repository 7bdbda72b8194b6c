"""OC212: complex numbers, for a Mac whose torch or macOS has none."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.scan.rule import Hit, Scanned, ScanRule, argument
from opcheck.versions import Version

_TORCH, _MACOS = Version(2, 3), Version(14)
_DTYPES = {"torch.complex64", "torch.cfloat"}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Imaginary literals beside calls of torch, and dtype=torch.complex64."""
    target = scanned.target
    if target.torch >= _TORCH and target.macos >= _MACOS:
        return
    if isinstance(node, ast.Call):
        dtype = argument(node, None, "dtype")
        found = scanned.dotted(dtype) in _DTYPES
    else:
        literal = isinstance(node, ast.Constant) and isinstance(node.value, complex)
        found = literal and _with_torch(node, scanned)
    if found:
        yield Hit(
            node=node,
            message=f"complex numbers on MPS need torch {_TORCH} and macOS {_MACOS.major}",
            hint="keep the real and the imaginary part as two tensors: opcheck explain",
        )


def _with_torch(node: ast.AST, scanned: Scanned) -> bool:
    """Whether the literal is in one expression with a call of torch."""
    top = node
    for child, parent in scanned.program.ancestors(node):
        if not isinstance(parent, ast.expr):
            break
        top = parent
        del child
    calls = (part for part in ast.walk(top) if isinstance(part, ast.Call))
    return any(scanned.dotted(call.func).startswith("torch.") for call in calls)


RULE = ScanRule(
    id="OC212",
    slug="complex_written",
    title="Complex numbers, for a Mac whose torch or macOS has none",
    severity="warning",
    nodes=(ast.Call, ast.Constant),
    check=check,
    page="""
**What.** An imaginary literal in an expression of tensors, or `dtype=torch.complex64`, while the target is older than torch
2.3 or macOS 14.

**Why.** Before those, MPS has no complex dtype: the operators raise, and some end the process. From both on a literal is
cast to complex64 and works; complex128 never does (OC210).

**Before.**

```python
wave = torch.exp(1j * phase)
```

**After.**

```python
wave_real, wave_imag = torch.cos(phase), torch.sin(phase)
```

**Way out.** A newer torch and macOS; or two real tensors. `opcheck explain` lists remedies for complex numbers.

**Evidence.** `MPS complex types are only supported on MacOS 14.0 or newer.` in the libraries of torch 2.3 to 2.8;
`Complex types are unsupported on MPS` in 2.1 and 2.2. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
