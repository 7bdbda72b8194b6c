"""In which of the literal lists of common_mps.py an OpInfo stands, read from the macOS wheel.  Nothing is executed."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path

from opcheck.data.wheels.archive import default_cache

MEMBER = "torch/testing/_internal/common_mps.py"


def entries(torch: str, cache: Path | None = None) -> dict[str, dict[str, frozenset[str]]]:
    """CI key (name and variant without separator) -> list of forward that holds it -> dtypes (none: all).

    Raises:
        FileNotFoundError: the release's wheel is not on this machine.
    """
    wheels = sorted((cache or default_cache()).glob(f"torch-{torch}-*.whl"))
    if not wheels:
        message = f"no wheel of torch {torch} in {cache or default_cache()}"
        raise FileNotFoundError(message)
    with zipfile.ZipFile(wheels[0]) as wheel:
        tree = ast.parse(wheel.read(MEMBER))
    results: dict[str, dict[str, frozenset[str]]] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "mps_ops_modifier":
            for node in ast.walk(function):
                for name, key, dtypes in _keys(node):
                    results.setdefault(key, {})[name] = dtypes
    return results


def _keys(node: ast.AST) -> Iterator[tuple[str, str, frozenset[str]]]:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
        return
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    for key, value in zip(node.value.keys, node.value.values, strict=True):
        if isinstance(target, ast.Name) and isinstance(key, ast.Constant):
            dtypes = (item.attr for item in ast.walk(value) if isinstance(item, ast.Attribute))
            yield target.id, str(key.value), frozenset(dtypes)
