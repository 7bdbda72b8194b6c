"""The public names and arguments of torch's Python that some releases have and others lack."""

from __future__ import annotations

from pathlib import Path

import msgspec

from opcheck.data.history import Entry, expand
from opcheck.data.tables import ListFile


class PythonNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of python_names.json, which scripts/extract_python_names.py writes."""

    schema: int
    #: the release lines whose wheels were read, in order
    releases: tuple[str, ...]
    #: module -> name -> the release lines where it appears (a text) and disappears (null)
    modules: dict[str, dict[str, tuple[Entry, ...]]]
    #: function, method or ``aten.`` and a function of C++ -> argument -> the same
    arguments: dict[str, dict[str, tuple[Entry, ...]]]

    def has_argument(self, line: str, function: str, argument: str) -> bool:
        """Return whether the function takes the argument in that release; it must be in the file."""
        return line in expand(self.arguments[function][argument], self.releases)

    def has(self, line: str, module: str, name: str) -> bool:
        """Return whether the module has the name in that release; the name must be in the file."""
        return line in expand(self.modules[module][name], self.releases)


NAMES = ListFile("python_names.json", PythonNames, made_by="python scripts/extract_python_names.py")


def python_names(directory: Path | None = None) -> PythonNames:
    """Return the names, which are read once."""
    return NAMES.load(directory)
