"""The operators that composites, and torch's Python names, call on a Mac, and the overloads that an API name enters.

The bodies of composites are computed from the samples of PyTorch's operator database on the simulated Mac; an
overload that no sample reaches has no entry: its calls are unknown.  The calls of torch's modules, Python functions
and methods were recorded on the simulated Mac of each release (scripts/python_calls.py).
"""

import functools
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.common.versions import Version
from opcheck.data.registrations import FILES
from opcheck.data.tables import SCHEMA, ListFile

#: Namespaces of torch whose functions are operators with the namespace in the name.
_PREFIXED = ("fft", "linalg", "special")
_MODULES = ("nn.functional.", "fft.", "linalg.", "special.", "masked.", "signal.windows.")
_LEADING = ("torch.", "Tensor.", "F.", "functional.")


class CompositeBody(NamedTuple):
    """The calls of a composite's body, as operators that have a verdict of their own."""

    #: called in every sample
    always: tuple[str, ...]
    #: called in some samples: the call depends on the arguments
    sometimes: tuple[str, ...]
    #: the torch release that the body was run with, or read in the wheel of
    torch: str
    #: the body was read from the library's machine code instead of run
    read: bool = False

    @property
    def both(self) -> tuple[str, ...]:
        """All operators that the composite calls, always or sometimes."""
        return (*self.always, *self.sometimes)


#: (release line, always, sometimes) wherever it changes; null: no sample reached it, or the release lacks the name.
Rows = tuple[tuple[str, tuple[str, ...] | None, tuple[str, ...] | None], ...]


_NO_ROW = ("", None, None)


class BodyTable(msgspec.Struct, frozen=True, kw_only=True):
    """A data file of the bodies of composites: run with samples or made arguments, or read in a library."""

    schema: int
    #: release line of the registrations -> the torch release that ran, or whose wheel was read
    torch: dict[str, str]
    #: of samples: release line -> the torch release whose wheel was read, for lines older than all that ran
    read: dict[str, str] = {}
    #: of samples: the overloads that each Python function of the operator database enters
    apis: dict[str, tuple[str, ...]] = {}
    composites: dict[str, Rows]


class PythonCalls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data file of what Python names call: usually, and with other arguments or in training."""

    schema: int
    #: the torch release whose Python ran
    torch: str
    calls: dict[str, Rows]


_NO_BODIES = BodyTable(schema=SCHEMA, torch={}, composites={})
SAMPLED = ListFile("composites.json", BodyTable, made_by="python -m scripts.opinfo.derive")
#: Bodies that were run with arguments made from schemas.
MADE = ListFile("schema_bodies.json", BodyTable, made_by="python -m scripts.schema_bodies", missing=_NO_BODIES)
#: Bodies that were read in the libraries of the wheels.
READ = ListFile("read_bodies.json", BodyTable, made_by="python -m scripts.read_bodies", missing=_NO_BODIES)
PYTHON_CALLS = ListFile("python_calls.json", PythonCalls, made_by="python -m scripts.python_calls")


class _OperatorNames(msgspec.Struct, frozen=True):
    """The operator names of a history file; their values are not read."""

    schema: int
    operators: dict[str, msgspec.Raw]


_REGISTERED = ListFile(FILES["MPS"], _OperatorNames, made_by="opcheck lists build")


def body(op: str, line: str, directory: Path | None = None) -> CompositeBody | None:
    """Return what ``op`` calls with the registrations of a release line; None: nothing is known.

    Samples of the operator database come first, then calls whose arguments were made from the schema, then
    what the library of the line's own wheel calls, all branches of its body together.

    Raises:
        OpListError: a data file is missing or damaged.
    """
    return run_body(op, line, directory) or _in_table(READ.load(directory), op, line, read=True)


def run_body(op: str, line: str, directory: Path | None = None) -> CompositeBody | None:
    """Return what runs of the operator database, or of calls made from schemas, reached of ``op``.

    Raises:
        OpListError: a data file is missing or damaged.
    """
    table = MADE.load(directory)
    return find_sampled_body(op, line, directory) or _in_table(table, op, line, read=False)


def _in_table(table: BodyTable, op: str, line: str, *, read: bool) -> CompositeBody | None:
    if op not in table.composites:
        return None
    lines = sorted(map(Version.parse, table.torch))
    run = max(each for each in lines if each <= max(Version.parse(line), lines[0]))
    return _last_body(table.composites[op], run, table.torch[str(run)], read=read)


def _last_body(rows: Rows, version: Version, torch: str, *, read: bool = False) -> CompositeBody | None:
    """Return the body of the newest row up to a version; None where that row has none."""
    _, always, sometimes = ([_NO_ROW] + [row for row in rows if Version.parse(row[0]) <= version])[-1]
    return None if always is None else CompositeBody(always, sometimes or (), torch, read)


def find_sampled_body(op: str, line: str, directory: Path | None = None) -> CompositeBody | None:
    """Return what the samples of the operator database reached of ``op``, by a line's registrations.

    The result is None where no sample reached the overload.  A line newer than every recorded one takes the
    newest record.  An older line takes the oldest record, except where the library in its wheel calls something
    else (bodies.yaml).  The verdicts on the called operators are always those of the line itself.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    table = SAMPLED.load(directory)
    version = Version.parse(line)
    recorded = _in_table(table, op, line, read=False)
    rows = table.composites.get(op, ())
    if version >= min(map(Version.parse, table.torch)) or not any(Version.parse(row[0]) <= version for row in rows):
        return recorded
    earlier = _last_body(rows, version, table.read.get(line, ""), read=True)
    return recorded if recorded and earlier and recorded[:2] == earlier[:2] else earlier


def api_names(name: str, directory: Path | None = None) -> tuple[str, ...]:
    """Return the overloads behind a name that a user writes; empty where there are none.

    ``torch.fft.rfft``, ``nn.functional.grid_sample``, a bare ``isin``, ``aten::isin`` and ``aten.isin``
    are understood; an overload written whole (``aten::add.Tensor``) is its own answer.

    Raises:
        OpListError: a data file is missing or damaged.
    """
    bases = _bases(directory)
    if "::" in name or name.startswith("aten."):
        base, _, overload = name.replace("aten.", "aten::", 1).rpartition("::")[2].partition(".")
        overloads = bases.get(base, ())
        overload = "" if overload == "default" else overload
        whole = f"aten::{base}.{overload}" if overload else f"aten::{base}"
        return (whole,) if whole in overloads else () if overload else overloads
    short = name
    for leading in _LEADING:
        short = short.removeprefix(leading)
    apis = SAMPLED.load(directory).apis
    for spelled in (short, *(module + short for module in _MODULES)):
        if spelled in apis:
            return apis[spelled]
    head, _, last = short.rpartition(".")
    return bases.get(f"{head}_{last}" if head in _PREFIXED else last, ())


@functools.cache
def _bases(directory: Path | None) -> dict[str, tuple[str, ...]]:
    """Return the overloads of each operator over all releases, by its name without an overload."""
    overloads: dict[str, list[str]] = {}  # not group_values: opcheck op loads no module for it
    for op in sorted(_REGISTERED.load(directory).operators):
        overloads.setdefault(op.partition("::")[2].partition(".")[0], []).append(op)
    return {base: tuple(ops) for base, ops in overloads.items()}


def python_body(name: str, line: str, directory: Path | None = None) -> CompositeBody | None:
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
    table = PYTHON_CALLS.load(directory)
    return _last_body(table.calls.get(name, ()), Version.parse(line), table.torch)


def python_callers(directory: Path | None = None) -> frozenset[str]:
    """Return every Python name whose calls were recorded.

    Raises:
        OpListError: the data file is missing or damaged.
    """
    return frozenset(PYTHON_CALLS.load(directory).calls)
