"""Find the tested remedy that fits a finding: its name for the hint, and the user's line rewritten by it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from opcheck.common.versions import Target
from opcheck.judge.remedies import REMEDIES, for_kind
from opcheck.judge.remedies.match import rewritten


class WayOut(NamedTuple):
    """The part of a finding that names a remedy; both fields are empty if there is none."""

    hint: str = ""
    line: str = ""


def way_out(kinds: Iterable[str], target: Target, text: str = "") -> WayOut:
    """Return the first remedy for these kinds; a remedy that fits the line comes first.

    Args:
        kinds: as in ``Remedy.kinds``, the most telling first.
        target: the Mac: a remedy is offered where each of its calls is native.
        text: the user's line.
    """
    kinds = tuple(kinds)
    remedies = {kind: for_kind(kind, target) for kind in kinds}
    fitting = [remedy for remedy in remedies.values() if remedy and rewritten(remedy, text)]
    remedy = next(iter(fitting), next((offered for offered in remedies.values() if offered), None))
    if remedy is None:
        return WayOut()
    return WayOut(f"opcheck explain {remedy.id} has tested code for it", rewritten(remedy, text))


def operator_way_out(op: str, target: Target, text: str = "") -> WayOut:
    """Return the remedy for an operator; for a transform, the remedy of the function that the line calls."""
    base = op.partition(".")[0]
    family = base.removeprefix("aten::_").partition("_")[0]
    relatives = (
        kind for remedy in REMEDIES for kind in remedy.kinds if kind.startswith(f"{family}/")
    )
    matching = [kind for kind in relatives if re.search(rf"\b{kind.partition('/')[2]}\(", text)]
    return way_out((*matching, base), target, text)
