"""Reads the source of installed libraries, without importing them."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from opcheck.common import documents
from opcheck.common.python_source import parse


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; an empty one where there is no such file."""
    try:
        return parse(documents.read(path), path.name)
    except (OSError, SyntaxError):
        return ast.Module([], [])


def items_of(module: ast.Module, name: str) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Yield the keys and the values of a module's dictionary."""
    for node in module.body:
        names = [each.id for each in getattr(node, "targets", ()) if isinstance(each, ast.Name)]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and name in names:
            yield from zip(node.value.keys, node.value.values, strict=True)


def keys_of(path: Path, name: str) -> frozenset[str]:
    """Return the texts that are the keys of a module's dictionary."""
    keys = (key.value for key, _ in items_of(tree(path), name) if isinstance(key, ast.Constant))
    return frozenset(key for key in keys if isinstance(key, str))
