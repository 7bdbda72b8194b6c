"""The operators that torch's modules, Python functions and methods call on a Mac, by release.

The data was recorded by small calls on the simulated Mac of each release (scripts/python_calls.py).
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from opcheck.common.versions import Version
from opcheck.data.composites import Body
from opcheck.data.registrations import data_directory
from opcheck.data.tables import read_table

FILE = "python_calls.json"
SCHEMA = 1

#: (release line, usual calls, calls with other arguments or in training) wherever it changes; null: the release lacks
#: the name
Rows = tuple[tuple[str, tuple[str, ...] | None, tuple[str, ...] | None], ...]


class PythonCalls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the data file."""

    schema: int
    #: the torch release whose Python ran
    torch: str
    calls: dict[str, Rows]


def calls(name: str, line: str, directory: Path | None = None) -> Body | None:
    """Return the operators that a Python name calls with the registrations of a release.

    Args:
        name: ``nn.Linear``, ``nn.functional.lp_pool1d`` or ``Tensor.cpu``.
        line: the release line.
        directory: of the op lists.

    Returns:
        The operators; None where the release lacks the name, or none of its examples ran.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    table = _table(directory or data_directory())
    version = Version.parse(line)
    rows = [row for row in table.calls.get(name, ()) if Version.parse(row[0]) <= version]
    _, always, sometimes = (rows or [("", None, None)])[-1]
    return None if always is None else Body(always, sometimes or (), table.torch)


def names(directory: Path | None = None) -> frozenset[str]:
    """Return every recorded name.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    return frozenset(_table(directory or data_directory()).calls)


@functools.cache
def _table(directory: Path) -> PythonCalls:
    return read_table(
        directory / FILE,
        PythonCalls,
        SCHEMA,
        what="the table of what Python names call",
        made_by="python -m scripts.python_calls",
    )
