"""The tables of a sweep: their columns, types and meaning.  ``docs/reference/sweep-tables.md`` describes them.

A folder of a sweep has one Parquet file a table, ``FOLDER/NAME.parquet``.  The metadata of each file's schema say
under ``opcheck`` (JSON, as ``sweep.json`` in the folder) what was swept: the version of these tables, opcheck's
version, the digest of its op lists, the packages, the targets.
"""

from typing import Any, NamedTuple

from opcheck.common.yaml_text import load_shipped

#: Of the tables and of the folder; another one is not read.
FORMAT = 1


class Column(NamedTuple):
    """One column: its name, its type as pyarrow calls it, and its meaning."""

    name: str
    type: str
    meaning: str


def _tables() -> dict[str, tuple[Column, ...]]:
    content = load_shipped(__file__, "sweep_tables.yaml")

    def columns(table: dict[str, Any]) -> tuple[Column, ...]:
        groups = (*(content["groups"][name] for name in table["begins_with"]), table["columns"])
        return tuple(Column(name, *row) for group in groups for name, row in group.items())

    return {name: columns(table) for name, table in content["tables"].items()}


#: The tables, by their names.
TABLES = _tables()
