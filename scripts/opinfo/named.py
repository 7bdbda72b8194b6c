"""In which of the literal lists of common_mps.py an OpInfo stands, read from the macOS wheel.  Nothing is executed."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

from opcheck.oplists.wheel import default_cache

MEMBER = "torch/testing/_internal/common_mps.py"


def entries(torch: str, cache: Path | None = None) -> dict[str, frozenset[str]]:
    """CI key (name and variant without separator) -> the names of the lists of forward that hold it.

    Raises:
        FileNotFoundError: the release's wheel is not on this machine.
    """
    wheels = sorted((cache or default_cache()).glob(f"torch-{torch}-*.whl"))
    if not wheels:
        message = f"no wheel of torch {torch} in {cache or default_cache()}"
        raise FileNotFoundError(message)
    with zipfile.ZipFile(wheels[0]) as wheel:
        tree = ast.parse(wheel.read(MEMBER))
    found: dict[str, set[str]] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name == "mps_ops_modifier":
            for node in ast.walk(function):
                for name, key in _keys(node):
                    found.setdefault(key, set()).add(name)
    return {key: frozenset(names) for key, names in found.items()}


def _keys(node: ast.AST) -> list[tuple[str, str]]:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(
        node.value, ast.Dict | ast.Set
    ):
        return []
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    keys = node.value.keys if isinstance(node.value, ast.Dict) else node.value.elts
    return [
        (target.id, key.value)
        for key in keys
        if isinstance(target, ast.Name)
        and isinstance(key, ast.Constant)
        and isinstance(key.value, str)
    ]
