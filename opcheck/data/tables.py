"""Read a generated data file that is a JSON object with a schema number."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from opcheck.common import documents
from opcheck.common.errors import OpListError


class HasSchema(Protocol):
    """A data file with a schema number."""

    @property
    def schema(self) -> int:
        """The number of the file's schema."""


Kind = TypeVar("Kind", bound=HasSchema)


def read_table(path: Path, kind: type[Kind], schema: int, *, what: str, made_by: str) -> Kind:
    """Read and decode the file.

    Args:
        path: the file.
        kind: the record that it holds.
        schema: the number that this opcheck reads.
        what: what the file should be, for the error.
        made_by: the command that makes it again.

    Raises:
        OpListError: it cannot be read, is of another form, or has another schema number.
    """
    try:
        table = msgspec.json.decode(documents.read(path), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise OpListError(
            f"not {what}: {error}",
            context=str(path),
            hint=f"restore the file, or make it again: {made_by}",
        ) from error
    if table.schema != schema:
        raise OpListError(
            f"schema {table.schema} is not the one that this opcheck reads ({schema})",
            context=f"{path}: schema",
            hint="install the opcheck that the lists belong to",
        )
    return table
