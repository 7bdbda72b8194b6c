"""Compile the curated statements into op_lists/statements.json, which is quick to read.

The arguments of the operators that conditions speak of, with their defaults, come from the schemas
of the torch that is installed.  An operator that it lacks keeps what was compiled before; where
nothing was, a condition cannot be told where an argument is left to its default.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from opcheck.common.files import write_text
from opcheck.data.registrations import data_directory, load
from opcheck.data.statement_files import read_statements
from opcheck.data.statement_model import EVERY_OPERATOR, Argument, Arguments, Statement
from opcheck.data.statements import INDEX, INDEX_SCHEMA, Index, dump_index, fingerprint, read_index

_INFINITE = (math.inf, -math.inf)
_PLAIN = (bool, int, float, str, type(None))


def compile_index(directory: Path) -> Index:
    """The index of the statements below a directory.

    Raises:
        OpListError: they hold problems; all of them are named.
    """
    statements = read_statements(directory)
    before = read_index(directory)
    known = before.arguments if before is not None else {}
    arguments: dict[str, Arguments] = {}
    for op in sorted({op for statement in statements for op in _asked(statement, load().names())}):
        result = schema_arguments(op) or known.get(op)
        if result:
            arguments[op] = result
    return Index(schema=INDEX_SCHEMA, fingerprint=fingerprint(directory), statements=statements, arguments=arguments)


def _asked(statement: Statement, names: Iterable[str]) -> Iterator[str]:
    """The operators whose arguments a statement speaks of."""
    if not statement.condition and not statement.dtypes_of:
        return
    for op in statement.ops:
        if op == EVERY_OPERATOR:
            continue
        if op.endswith("*"):
            yield from (name for name in names if name.startswith(op[:-1]))
        else:
            yield op


def schema_arguments(op: str) -> Arguments:
    """The arguments of an operator in the installed torch, by name; empty where it has none such."""
    name, _, overload = op.partition(".")
    try:
        schema = torch._C._get_schema(name, overload)  # noqa: SLF001  (there is no public way)
    except RuntimeError:
        return {}
    return {argument.name: _argument(argument) for argument in schema.arguments}


def _argument(argument: Any) -> Argument:
    tensors = "Tensor" in str(argument.type) and "List" in str(argument.type)
    if not argument.has_default_value():
        return Argument(tensors=tensors)
    default = argument.default_value
    items = default if isinstance(default, list) else [default]
    # JSON has no infinity.
    plain = default not in _INFINITE and all(isinstance(item, _PLAIN) for item in items)
    return Argument(tensors=tensors, optional=plain, default=default if plain else None)


if __name__ == "__main__":
    write_text(data_directory() / INDEX, dump_index(compile_index(data_directory())))
