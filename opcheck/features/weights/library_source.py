"""Reads the source of installed libraries, without importing them."""

import ast
import functools
from importlib import metadata
from pathlib import Path

from opcheck.common import documents
from opcheck.common.python_source import parse


def version(distribution: str) -> str:
    """Return the version of an installed distribution; empty: it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; an empty one where there is no such file."""
    try:
        return parse(documents.read(path), path.name)
    except (OSError, SyntaxError):
        return ast.Module([], [])


def keys_of(path: Path, name: str) -> frozenset[str]:
    """Return the texts that are the keys of a module's dictionary."""
    return frozenset(
        key.value
        for node in tree(path).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == name
        for key in node.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )
