"""OC110: what the CPU fallbacks of one run copy."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding
from opcheck.rules.rule import Audited, Rule
from opcheck.wording import filesize, plural


def check(audited: Audited) -> Iterator[Finding]:
    """One finding with the totals, if anything is copied."""
    moved = audited.partition
    if not moved.transfers_to_cpu + moved.transfers_to_mps:
        return
    regions = [region for region in moved.regions if region.side == "cpu"]
    yield Finding(
        rule="OC110",
        severity="note",
        message=f"the CPU fallbacks make {plural(moved.transfers_to_cpu, 'copy')} to the CPU "
        f"({filesize(moved.bytes_to_cpu)}) and {moved.transfers_to_mps:,} back "
        f"({filesize(moved.bytes_to_mps)})"
        + (f" in {plural(len(regions), 'region')}" if regions else ""),
        hint="fallback calls in a row share no copies: "
        "one .cpu() before them and one .to('mps') after copies less",
        count=sum(region.calls for region in regions),
    )


RULE = Rule(
    id="OC110",
    slug="transfers",
    title="CPU fallbacks copy tensors",
    severity="note",
    check=check,
    page="""
**What.** How many tensors the CPU fallbacks of one run copy, and their bytes, each way.

**Why.** The fallback (`at::native::cpu_fallback`) copies, for every call anew, each argument to
the CPU, then each argument that was written and each result back. Two fallback calls in a row
copy the tensor between them back and forth. Each copy also waits for the GPU to finish.

**Before.**

```python
a = torch.special.airy_ai(x)  # to the CPU and back
b = torch.special.airy_ai(a)  # to the CPU and back
```

**After.**

```python
a = torch.special.airy_ai(x.cpu())
b = torch.special.airy_ai(a).to("mps")
```

**Way out.** Where several calls in a row fall back, move the tensors once: `y = f(x.cpu())`, all
of the steps on the CPU, then `y.to("mps")`.

**Evidence.** `aten/src/ATen/native/CPUFallback.cpp`; sizes from the captured shapes. Copies that
a kernel makes by itself are counted as if the fallback made them.

**Since.** opcheck 0.1.
""",
)
