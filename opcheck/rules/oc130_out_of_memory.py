"""OC130: the run takes more memory than the GPU of a Mac gives."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.memory.macs import asked, smallest
from opcheck.model import Finding, MacFit, Memory
from opcheck.rules.rule import Audited, Rule, sentences
from opcheck.wording import filesize


def check(audited: Audited) -> Iterator[Finding]:
    """One finding: about the Mac that was asked about, or where no Mac is large enough."""
    memory = audited.memory
    if memory is None:
        return
    mac = asked(memory)
    if mac is None and smallest(memory, "fits", "pressure") is None:
        mac = memory.macs[-1]
    if mac is not None and mac.state != "fits":
        yield _finding(memory, mac)


def _finding(memory: Memory, mac: MacFit) -> Finding:
    raises = mac.state == "raises"
    if not raises:
        why = f"Metal recommends {filesize(mac.working_set)}: it may swap and slow down"
    elif mac.prints.startswith("Invalid buffer"):
        why = "a tensor takes more than one buffer may"
    else:
        why = f"PyTorch raises above {filesize(mac.limit)}"
    enough = smallest(memory, "fits")
    return Finding(
        rule="OC130",
        severity="error" if raises else "warning",
        message=f"an estimated {filesize(memory.peak.total)} on a Mac of {mac.memory} GB: {why}",
        hint=sentences(
            *memory.advice,
            f"a Mac of {enough.memory} GB would do" if enough else "no Mac up to 128 GB would do",
        ),
        prints=mac.prints,
        locations=(mac.place,) if mac.place else (),
    )


RULE = Rule(
    id="OC130",
    slug="out_of_memory",
    title="More memory than the Mac's GPU gives",
    severity="error",
    check=check,
    page="""
**What.** The tensors of the run together, or one of them alone, take more memory than the GPU of the Mac
gives that `--memory` names; without the flag: than that of any Mac up to 128 GB. An estimate: the
report's section on memory says what it counts.

**Why.** Metal recommends a working set, about two thirds of a small Mac's memory and more of a large
one's. PyTorch goes on up to 1.7 times that (`PYTORCH_MPS_HIGH_WATERMARK_RATIO`), during which macOS
compresses and swaps, and raises above it: the error. One tensor must fit one Metal buffer. Kernels,
MPSGraph, the allocator's own rounding and other programs come on top, so that what barely fits may not.

**Before.**

```python
loader = DataLoader(data, batch_size=64)
```

**After.**

```python
loader = DataLoader(data, batch_size=8)  # and 8 steps of gradients added up
```

**Way out.** What the report names: a smaller batch, `--dtype float16`, `torch.inference_mode()`,
`torch.utils.checkpoint` in training, a smaller optimizer. `PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0` only
turns the error off; the machine may then freeze.

**Evidence.** `aten/src/ATen/mps/MPSAllocator.h` and `MPSAllocator.mm` for the ratios and the texts,
`op_lists/macs.yaml` for the working sets: reports from Macs and estimates. Lifetimes of tensors: those
of the simulated run, which PyTorch's tests of this tool hold against the live peak on a CPU.

**Since.** opcheck 0.1.
""",
)
