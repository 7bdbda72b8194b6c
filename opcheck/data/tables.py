"""Read a file of the op lists as a record: one way to find it, to decode it, to check it and to keep it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from opcheck.common import documents
from opcheck.common.errors import OpListError, explain_errors
from opcheck.data.history import Entry, expand
from opcheck.data.registrations import data_directory
from opcheck.data.strict_yaml import Document, read_as

Kind = TypeVar("Kind")

#: The schema number that the files have, and that this opcheck reads.
SCHEMA = 1


class ListFile(Generic[Kind]):
    """A file of the op lists; each directory's file is read once.

    Args:
        name: the file below the directory of the op lists: YAML that people write, or generated JSON.
        kind: the record that it contains, with a field ``schema``.
        made_by: the command that writes a generated file.
        check: reports to the document the values of a YAML file that contradict each other.
        missing: replaces a file that does not exist; None: the file must exist.
    """

    def __init__(
        self,
        name: str,
        kind: type[Kind],
        *,
        made_by: str = "",
        check: Callable[[Document, Kind], None] = lambda *_: None,
        missing: Kind | None = None,
    ) -> None:
        self.name, self._kind, self._made_by = name, kind, made_by
        self._check, self._missing = check, missing
        self._values: dict[Path, Kind] = {}

    def load(self, directory: Path | None = None) -> Kind:
        """Return the content of the file below a directory; below the shipped op lists by default.

        Raises:
            OpListError: the file is missing or damaged; the message names every problem of a YAML file.
        """
        directory = directory or data_directory()
        if directory not in self._values:
            self._values[directory] = self._read(directory / self.name)
        return self._values[directory]

    def _read(self, path: Path) -> Kind:
        if self._missing is not None and not path.is_file():
            return self._missing
        if path.suffix == ".yaml":
            return read_as(path, self._kind, self._check_all)
        with explain_errors(
            (OSError, msgspec.DecodeError),
            f"{self.name} cannot be read",
            context=path,
            hint=f"restore the file, or make it again: {self._made_by}",
            kind=OpListError,
        ):
            value: Any = msgspec.json.decode(documents.read(path), type=self._kind)
        if value.schema != SCHEMA:
            message = f"the file has schema {value.schema}, and this opcheck reads schema {SCHEMA}"
            raise OpListError(message, context=f"{path}: schema", hint="install the opcheck that the lists belong to")
        return value  # type: ignore[no-any-return]

    def _check_all(self, document: Document, value: Any) -> None:
        if value.schema != SCHEMA:
            document.report(("schema",), f"the schema must be {SCHEMA}")
        self._check(document, value)


# -- the public names and arguments of torch's Python that some releases have and others lack ------------------


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


# -- the dtypes that no backend computes an operator in: the CPU refuses them, and no device is known to take them ---


class RefusedDtypes(msgspec.Struct, frozen=True, kw_only=True):
    """The data file."""

    schema: int
    #: the torch release of the CPU and of the operator database that the table was read from
    torch: str
    #: overload -> dtypes
    refused: dict[str, tuple[str, ...]]


_NONE_REFUSED = RefusedDtypes(schema=SCHEMA, torch="", refused={})
REFUSED = ListFile(
    "refused_dtypes.json", RefusedDtypes, made_by="python -m scripts.refused_dtypes", missing=_NONE_REFUSED
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
