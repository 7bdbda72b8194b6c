"""OC140: a float64 tensor that meets MPS begins here."""

from __future__ import annotations

from opcheck.rules.origin import check_of
from opcheck.rules.rule import Rule

RULE = Rule(
    id="OC140",
    slug="float64_origin",
    title="A float64 tensor that meets MPS begins here",
    severity="error",
    check=check_of("OC140", "float64"),
    page="""
**What.** Here a float64 (or complex128) tensor is made that later meets MPS. The finding names the
line that makes it, the calls that it passes, and the first that fails. Change the origin: the
failing line is only where it shows.

**Why.** Metal has no float64. Moving such a tensor to MPS, or making it there, raises `TypeError`:
`Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please
use float32 instead.` The usual origins are NumPy and SciPy arrays (float64 unless asked otherwise),
`torch.set_default_dtype(torch.float64)`, `.double()`, `dtype=torch.float64`, and tables that a
constructor computes in double precision. `PYTORCH_ENABLE_MPS_FALLBACK=1` does not help: there is
no tensor that could fall back.

**Before.**

```python
self.register_buffer("window", torch.from_numpy(scipy.signal.get_window("hann", 400)))
```

**After.**

```python
self.register_buffer("window", torch.from_numpy(scipy.signal.get_window("hann", 400)).float())
```

**Way out.** Cast where it begins, as above: what is computed on the CPU may stay in double
precision up to the cast. `opcheck audit MODEL --precision` says which parts need more than float32.

**Evidence.** The allocation's check in the MPS sources (aten/src/ATen/mps/EmptyTensor.cpp), in all
releases from 1.13 to 2.15. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
