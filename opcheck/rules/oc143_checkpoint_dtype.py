"""OC143: a checkpoint file holds tensors that cannot be loaded onto MPS."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge import judge
from opcheck.model import Birth, Finding, OpCall, TensorSpec
from opcheck.rules.births import INSTEAD
from opcheck.rules.rule import Audited, Rule
from opcheck.wording import plural


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each file and dtype of which no tensor can be made on the target."""
    found: dict[tuple[str, str], list[Birth]] = {}
    for birth in audited.trace.births:
        if birth.how == "file" and not birth.tensor:
            found.setdefault((birth.api, birth.dtype), []).append(birth)
    for (file, dtype), births in found.items():
        verdict = judge(_load(dtype), audited.target, audited.lists)
        if verdict.status != "unsupported":
            continue
        names = ", ".join(birth.name for birth in births[:3])
        more = f" and {len(births) - 3:,} more" if len(births) > 3 else ""
        instead = INSTEAD.get(dtype, "a dtype that MPS has")
        yield Finding(
            rule="OC143",
            severity="warning",
            message=f"{plural(len(births), 'tensor')} in {file} "
            f"{'is' if len(births) == 1 else 'are'} {dtype} ({names}{more}): "
            "loading the file onto mps fails",
            hint=f"load it to the CPU and cast to {instead} before the move",
            prints=verdict.prints,
            count=len(births),
            remedy=f'state = torch.load("{file}", map_location="cpu")',
        )


def _load(dtype: str) -> OpCall:
    """What torch.load(..., map_location="mps") does with each storage (torch/serialization.py)."""
    made = TensorSpec(tensor=1, storage=1, dtype=dtype, shape=(1,))
    return OpCall(op="aten::_to_copy", outputs=(made,), inner=("aten::empty_strided",))


RULE = Rule(
    id="OC143",
    slug="checkpoint_dtype",
    title="A checkpoint holds tensors that cannot be loaded onto MPS",
    severity="warning",
    check=check,
    page="""
**What.** The file given with `--checkpoint` holds tensors of a dtype of which none can be made on
the target.

**Why.** `torch.load(file, map_location="mps")` makes each storage on MPS in the dtype that it was
saved in, and raises for float64 before the model's own dtype has a say. Optimizer states,
statistics kept in double precision and tensors saved from NumPy are the usual ones.

**Before.**

```python
model.load_state_dict(torch.load("model.pt", map_location="mps"))
```

**After.**

```python
state = torch.load("model.pt", map_location="cpu")
model.load_state_dict(state)  # copies into the parameters' own dtype
model.to("mps")
```

**Way out.** Load to the CPU, as above; cast what does not go through `load_state_dict`.

**Evidence.** torch/serialization.py moves each storage by its location; the check on allocation is
that of OC140. Nothing was tried on a Mac.

**Since.** opcheck 0.1.
""",
)
