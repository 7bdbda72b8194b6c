"""The public names and arguments of torch's Python that some releases have and others lack."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.errors import OpListError
from opcheck.data.history import Entry, expand
from opcheck.data.registrations import data_directory

FILE = "python_names.json"


class PythonNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of python_names.json, which scripts/extract_python_names.py writes."""

    schema: int
    #: the release lines whose wheels were read, in order
    releases: tuple[str, ...]
    #: module -> name -> the release lines at which it appears (a text) and disappears (null)
    modules: dict[str, dict[str, tuple[Entry, ...]]]
    #: function, method or ``aten.`` and a function of C++ -> argument -> the same
    arguments: dict[str, dict[str, tuple[Entry, ...]]]

    def has_argument(self, line: str, function: str, argument: str) -> bool:
        """Return whether the function takes the argument in that release; it must be in the file."""
        return line in expand(self.arguments[function][argument], self.releases)

    def has(self, line: str, module: str, name: str) -> bool:
        """Return whether the module has the name in that release; the name must be in the file."""
        return line in expand(self.modules[module][name], self.releases)


def python_names() -> PythonNames:
    """Read the names, once.

    Raises:
        OpListError: the file is missing or damaged.
    """
    return _read(data_directory())


@functools.cache
def _read(directory: Path) -> PythonNames:
    path = directory / FILE
    try:
        return msgspec.json.decode(documents.read(path), type=PythonNames)
    except (OSError, msgspec.DecodeError) as error:
        raise OpListError(
            "the names of torch's Python modules cannot be read",
            context=f"{path}: {error}",
            hint="restore the file, or extract again: python scripts/extract_python_names.py",
        ) from error
