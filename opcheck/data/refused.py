"""The dtypes that no backend computes an operator in: the CPU refuses them, and no device is known to take them."""

from __future__ import annotations

import msgspec

from opcheck.data.tables import SCHEMA, ListFile


class RefusedDtypes(msgspec.Struct, frozen=True, kw_only=True):
    """The data file."""

    schema: int
    #: the torch release of the CPU and of the operator database that the table was read from
    torch: str
    #: overload -> dtypes
    refused: dict[str, tuple[str, ...]]


REFUSED = ListFile(
    "refused_dtypes.json",
    RefusedDtypes,
    made_by="python -m scripts.refused_dtypes",
    missing=RefusedDtypes(schema=SCHEMA, torch="", refused={}),
)


def refused_by(op: str, dtype: str) -> str:
    """Return the torch release whose CPU refuses the dtype for the overload; empty where some backend takes it.

    Raises:
        OpListError: the data file is damaged.
    """
    table = REFUSED.load()
    return table.torch if dtype in table.refused.get(op, ()) else ""


def nowhere(dtype: str) -> str:
    """Return why a refused dtype is unsupported."""
    return f"no backend computes it in {dtype}: the CPU refuses it, too"
