"""Replacements for what MPS lacks: small functions and patterns, each tested and itself audited.

The table (``remedies.yaml``) has the purpose of each.  This module imports no torch; it reads the code from the
neighbouring modules, which import it.
"""

from pathlib import Path

import msgspec

from opcheck.common.versions import Target
from opcheck.common.yaml_text import load_shipped
from opcheck.judge.remedies.remedy import Remedy

__all__ = ["BY_ID", "REMEDIES", "Remedy", "for_kind"]


def _read() -> tuple[Remedy, ...]:
    return tuple(
        msgspec.convert({**group.get("defaults", {}), **remedy}, Remedy)
        for group in load_shipped(Path(__file__).with_name("remedies.yaml"))["groups"]
        for remedy in group["remedies"]
    )


REMEDIES = _read()

BY_ID: dict[str, Remedy] = {remedy.id: remedy for remedy in REMEDIES}


def for_kind(kind: str, target: Target) -> Remedy | None:
    """Return the first remedy for a kind that is offered on the target; None if there is none.

    Args:
        kind: an operator without its overload (``aten::polar``), or trait/how of an origin (``float64/numpy``).
        target: the Mac.
    """
    return next(
        (remedy for remedy in REMEDIES if kind in remedy.kinds and remedy.is_offered(target)), None
    )
