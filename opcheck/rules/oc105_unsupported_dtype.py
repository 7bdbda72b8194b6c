"""OC105: a dtype that MPS, or the kernel, refuses."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import CallGroup, Finding
from opcheck.rules.rule import Audited, Rule, about


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each group refused for its dtype."""
    for group in audited.groups:
        if refused_dtype(group):
            yield about(group, "OC105", "error", hint=_hint(group))


def refused_dtype(group: CallGroup) -> bool:
    """Whether the group is refused for a dtype: so says the id of its limitation."""
    return any("dtype" in name or "float64" in name for name in group.verdict.limitations)


def _hint(group: CallGroup) -> str:
    wide = {"float64": "float32", "complex128": "complex64"}
    narrow = [f"{name} -> {wide[name]}" for name in group.dtypes if name in wide]
    return "cast before the move to MPS" + (f": {', '.join(narrow)}" if narrow else "")


RULE = Rule(
    id="OC105",
    slug="unsupported_dtype",
    title="A dtype is refused",
    severity="error",
    check=check,
    page="""
**What.** The call makes or uses a tensor of a dtype that MPS, or this kernel, does not take. It
raises, with or without the fallback variable.

**Why.** Metal has no float64, so nothing of that dtype can be placed on MPS. The usual sources are
NumPy arrays (float64 by default), buffers made from them, `torch.set_default_dtype`, and
`.double()`. Other kernels take only some of the dtypes that their CPU twins take.

**Way out.** Cast before the tensor reaches MPS: `torch.from_numpy(a).float().to("mps")`,
`dtype=torch.float32` where it is made.

**Evidence.** The check in the MPS sources that the finding's limitation cites.
""",
)
