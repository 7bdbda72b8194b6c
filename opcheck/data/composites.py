"""What composites call in the end on a Mac, and which overloads an API name enters.

Computed from the samples of PyTorch's operator database on the simulated Mac; an overload that no
sample reaches has no entry, and nothing is known of what it calls.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.common.errors import OpListError
from opcheck.common.versions import Version
from opcheck.data.registrations import FILES, data_directory
from opcheck.data.tables import read_table

FILE = "composites.json"
SCHEMA = 1

#: Namespaces of torch whose functions are operators with the namespace in the name.
_PREFIXED = ("fft", "linalg", "special")
_MODULES = ("nn.functional.", "fft.", "linalg.", "special.", "masked.", "signal.windows.")
_LEADING = ("torch.", "Tensor.", "F.", "functional.")


class Body(NamedTuple):
    """What a composite's body calls, by operators with a verdict of their own."""

    #: in every sample
    always: tuple[str, ...]
    #: in some: it depends on the arguments
    sometimes: tuple[str, ...]
    #: the torch release that the body was run with, or read in the wheel of
    torch: str
    #: it was read, in the library's machine code, and not run
    read: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The data file."""

    schema: int
    #: release line of the registrations -> the torch release that ran
    torch: dict[str, str]
    #: release line -> the torch release whose wheel was read, for lines older than all that ran
    read: dict[str, str]
    apis: dict[str, tuple[str, ...]]
    #: overload -> (release line, always, sometimes) wherever it changes; null: no sample reached it
    composites: dict[str, tuple[tuple[str, tuple[str, ...] | None, tuple[str, ...] | None], ...]]


class _Names(msgspec.Struct, frozen=True):
    """Of a history file, the operators: their values are left unread."""

    operators: dict[str, msgspec.Raw]


def body(op: str, line: str, directory: Path | None = None) -> Body | None:
    """What ``op`` was seen to call with the registrations of a release line.

    None where no sample reached it.  A line newer than all that were run is answered by the newest.  For an older
    one the body of the oldest stands, except where the library in its wheel was seen to call something else
    (bodies.yaml); the verdicts on what is called are the line's own.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    table = _table(directory or data_directory())
    version = Version.parse(line)
    lines = sorted(map(Version.parse, table.torch))
    run = max(version, lines[0])
    rows = table.composites.get(op, ())
    recorded = [row for row in rows if Version.parse(row[0]) <= run]
    earlier = [row for row in rows if version < run and Version.parse(row[0]) <= version]
    _, always, sometimes = (earlier or recorded or [("", None, None)])[-1]
    if always is None:
        return None
    if earlier and earlier[-1][1:] != recorded[-1][1:]:
        return Body(always, sometimes or (), table.read[line], read=True)
    ran = max(known for known in lines if known <= run)
    return Body(always, sometimes or (), table.torch[str(ran)])


def called_by(op: str, line: str, directory: Path | None = None) -> tuple[str, ...] | None:
    """The leaf overloads that a composite calls, over all samples; None where nothing is known.

    An empty tuple says that the body runs no further operator.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    whole_body = body(op, line, directory)
    return (
        None if whole_body is None else tuple(sorted((*whole_body.always, *whole_body.sometimes)))
    )


def api_names(name: str, directory: Path | None = None) -> tuple[str, ...]:
    """The overloads behind what a user writes; empty where there are none.

    ``torch.fft.rfft``, ``nn.functional.grid_sample``, a bare ``isin``, ``aten::isin`` and ``aten.isin``
    are understood; an overload written whole (``aten::add.Tensor``) stands for itself.

    Raises:
        OpListError: a data file is missing or damaged.
    """
    bases = _bases(directory)
    if "::" in name or name.startswith("aten."):
        base, _, overload = name.replace("aten.", "aten::", 1).rpartition("::")[2].partition(".")
        known = bases.get(base, ())
        overload = "" if overload == "default" else overload
        whole = f"aten::{base}.{overload}" if overload else f"aten::{base}"
        return (whole,) if whole in known else () if overload else known
    short = name
    for leading in _LEADING:
        short = short.removeprefix(leading)
    apis = _table(directory or data_directory()).apis
    for spelled in (short, *(module + short for module in _MODULES)):
        if spelled in apis:
            return apis[spelled]
    head, _, last = short.rpartition(".")
    return bases.get(f"{head}_{last}" if head in _PREFIXED else last, ())


def apis(directory: Path | None = None) -> Mapping[str, tuple[str, ...]]:
    """Every Python function of the operator database, as ``nn.functional.gelu``, with its overloads.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    return _table(directory or data_directory()).apis


@functools.cache
def _bases(directory: Path | None) -> dict[str, tuple[str, ...]]:
    """Operator name without overload -> its overloads, in any release."""
    overloads: dict[str, list[str]] = {}
    for op in sorted(_registered(directory or data_directory()).operators):
        overloads.setdefault(op.partition("::")[2].partition(".")[0], []).append(op)
    return {base: tuple(ops) for base, ops in overloads.items()}


def _registered(directory: Path) -> _Names:
    path = directory / FILES["MPS"]
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Names)
    except (OSError, msgspec.DecodeError) as error:
        raise OpListError(
            f"an op list cannot be read: {error}",
            context=str(path),
            hint="restore the file, or rebuild a release: opcheck lists build",
        ) from error


@functools.cache
def _table(directory: Path) -> Table:
    path = directory / FILE
    return read_table(
        path,
        Table,
        SCHEMA,
        what="the table of what composites call",
        made_by="python -m scripts.derive_opinfo",
    )
