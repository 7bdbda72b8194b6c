"""The dtypes that no backend computes an operator in: the CPU refuses them, and no device is known to take them."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from opcheck.data.registrations import data_directory
from opcheck.data.tables import read_table

FILE = "refused_dtypes.json"
SCHEMA = 1


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The data file."""

    schema: int
    #: the torch release whose CPU and whose operator database were asked
    torch: str
    #: overload -> dtypes
    refused: dict[str, tuple[str, ...]]


def refused_by(op: str, dtype: str, directory: Path | None = None) -> str:
    """Return the torch release whose CPU refuses the dtype for the overload; empty where some backend takes it.

    Raises:
        OpListError: the data file is damaged.
    """
    table = _table(directory or data_directory())
    return table.torch if dtype in table.refused.get(op, ()) else ""


def nowhere(dtype: str) -> str:
    """Return the reason for which a refused dtype is unsupported."""
    return f"no backend computes it in {dtype}: the CPU refuses it, too"


@functools.cache
def _table(directory: Path) -> Refused:
    path = directory / FILE
    if not path.is_file():
        return Refused(schema=SCHEMA, torch="", refused={})
    return read_table(
        path,
        Refused,
        SCHEMA,
        what="the table of the dtypes that no backend computes",
        made_by="python -m scripts.refused_dtypes",
    )
