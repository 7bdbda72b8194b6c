"""OC141: a complex tensor that a call refuses begins here."""

from __future__ import annotations

from opcheck.rules.origin import check_of
from opcheck.rules.rule import Rule

RULE = Rule(
    id="OC141",
    slug="complex_origin",
    title="A complex tensor that a call refuses begins here",
    severity="error",
    check=check_of("OC141", "complex"),
    page="""
**What.** Here a complex tensor is made that a later call refuses, or may refuse. The finding names
the line that makes it and the first call that fails.

**Why.** Complex numbers came to MPS step by step: before torch 2.3 hardly any kernel takes them,
from 2.3 to 2.8 they need macOS 14, and some kernels refuse them to this day. A Python number such
as `1j`, `torch.polar`, `torch.view_as_complex` and each FFT make one.
`PYTORCH_ENABLE_MPS_FALLBACK=1` helps only where no kernel is registered at all.

**Before.**

```python
rotated = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * torch.polar(ones, angles)
```

**After.**

```python
a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
cos, sin = angles.cos(), angles.sin()
rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1)
```

**Way out.** Real arithmetic on the two parts, as above; or the release or macOS that the hint
names; or this part of the model on the CPU.

**Evidence.** The dtype maps read out of the macOS wheels, and the checks that the limitation
cites. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
