"""OC143: a checkpoint file has tensors that cannot be loaded onto MPS."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.judge.judge import judge
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.judge.texts import INSTEAD
from opcheck.model.records import Birth, Finding, OpCall, TensorSpec


@audit_rule("OC143", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each file and dtype that cannot be loaded onto the target."""
    by_file: dict[tuple[str, str], list[Birth]] = {}
    for birth in audited.trace.births:
        if birth.how == "file" and not birth.tensor:
            by_file.setdefault((birth.api, birth.dtype), []).append(birth)
    for (file, dtype), births in by_file.items():
        verdict = judge(_load(dtype), audited.target, audited.lists)
        if verdict.status != "unsupported":
            continue
        names = ", ".join(birth.name for birth in births[:3])
        more = f" and {len(births) - 3:,} more" if len(births) > 3 else ""
        instead = INSTEAD.get(dtype, "a dtype that MPS has")
        yield finding(
            message=f"{plural(len(births), 'tensor')} in {file} "
            f"{'is' if len(births) == 1 else 'are'} {dtype} ({names}{more}): "
            "loading the file onto mps fails",
            hint=f"load it to the CPU and cast to {instead} before the move",
            prints=verdict.prints,
            count=len(births),
            remedy=f'state = torch.load("{file}", map_location="cpu")',
        )


def _load(dtype: str) -> OpCall:
    """Return the call that torch.load(..., map_location="mps") makes for each storage (torch/serialization.py)."""
    made = TensorSpec(tensor=1, storage=1, dtype=dtype, shape=(1,))
    return OpCall(op="aten::_to_copy", outputs=(made,), inner=("aten::empty_strided",))
