"""Compares how two releases of Inductor decompose and lower operators: by their text.  Imports no torch."""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from opcheck.common import documents
from opcheck.data.wheels.inductor import RULES

#: An assignment that names more operators is a list of them: its text says nothing of one.
_FEW = 3


def differing(folder: str, operators: Iterable[str]) -> tuple[str, ...]:
    """Return the operators whose decomposition or lowering another release writes otherwise than the installed one.

    A function that the rule calls is not compared, so that the answer is a lower bound.

    Args:
        folder: the unpacked files of the other release; empty: there are none.
        operators: names of ATen's without overload: ``gelu``.
    """
    spec = importlib.util.find_spec("torch")
    if not folder or spec is None or spec.origin is None:
        return ()
    other, here = _rules(Path(folder)), _rules(Path(spec.origin).parents[1])
    return tuple(sorted(name for name in {*operators} if other.get(name) != here.get(name)))


def _rules(root: Path) -> Mapping[str, set[str]]:
    """Return the texts that make up the rule of each operator."""
    rules: dict[str, set[str]] = defaultdict(set)
    for file in RULES:
        path = root / file
        for statement in ast.parse(documents.read_text(path)).body if path.is_file() else ():
            for name, text in _rules_of(statement):
                rules[name].add(text)
    return rules


def _rules_of(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(statement, ast.FunctionDef):
        names = {name for decorator in statement.decorator_list for name in _operators(decorator)}
        body = statement.body[1:] if ast.get_docstring(statement) else statement.body
        text = "\n".join(map(ast.unparse, body))
        if not names and "core_aten" in statement.name:
            names, text = {*_operators(statement)}, statement.name
    else:
        names = {*_operators(statement)}
        text = type(statement).__name__ if len(names) > _FEW else ast.unparse(statement)
    yield from ((name, text) for name in names)


def _operators(tree: ast.AST) -> Iterator[str]:
    """Yield the operators that a piece of Python names: ``aten.gelu``, ``torch.ops.aten.gelu.default``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            namespace = node.value
            if "aten" in (getattr(namespace, "id", ""), getattr(namespace, "attr", "")):
                yield node.attr
