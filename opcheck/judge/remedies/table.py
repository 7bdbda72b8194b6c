"""The table of remedies: which remedy is for what.  Imports no torch."""

from __future__ import annotations

from opcheck.common.versions import Target
from opcheck.judge.remedies.complex_entries import COMPLEX
from opcheck.judge.remedies.dtype_entries import DTYPES
from opcheck.judge.remedies.fourier_entries import FOURIER
from opcheck.judge.remedies.precision_entries import PRECISION
from opcheck.judge.remedies.remedy import Remedy

REMEDIES: tuple[Remedy, ...] = (*DTYPES, *COMPLEX, *FOURIER, *PRECISION)

BY_ID: dict[str, Remedy] = {remedy.id: remedy for remedy in REMEDIES}


def for_kind(kind: str, target: Target) -> Remedy | None:
    """Return the first remedy for a kind that is offered on the target; None if there is none.

    Args:
        kind: an operator without its overload (``aten::polar``), or trait/how of an origin (``float64/numpy``).
        target: the Mac.
    """
    return next(
        (remedy for remedy in REMEDIES if kind in remedy.kinds and remedy.offered(target)), None
    )
