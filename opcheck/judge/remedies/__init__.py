"""Replacements for what MPS lacks: small functions and patterns, each tested and itself audited.

The table (``table.py``) imports no torch; the code is read from the modules beside it, which do.
"""

from opcheck.judge.remedies.remedy import Remedy
from opcheck.judge.remedies.table import BY_ID, REMEDIES, for_kind

__all__ = ["BY_ID", "REMEDIES", "Remedy", "for_kind"]
