"""OC142: a tensor of a dtype that few kernels know begins here."""

from __future__ import annotations

from opcheck.rules.origin import check_of
from opcheck.rules.rule import Rule

RULE = Rule(
    id="OC142",
    slug="rare_dtype_origin",
    title="A tensor of a dtype that few kernels know begins here",
    severity="error",
    check=check_of("OC142", "complex32", "unsigned", "float8"),
    page="""
**What.** Here a tensor of a dtype is made that few MPS kernels know: complex32, uint16, uint32,
uint64, or one of the float8 forms. The finding names the line and the first call that refuses it.

**Why.** Each kernel asks for the Metal type of its tensors, and for these dtypes most releases
have none.

**Before.**

```python
index = torch.zeros(n, dtype=torch.uint16)
```

**After.**

```python
index = torch.zeros(n, dtype=torch.int32)
```

**Way out.** A signed integer that holds all the values; complex64 for complex32; float16 with a
scale of its own for float8.

**Evidence.** The dtype maps read out of the macOS wheels. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
