"""The statement around a line, written in one way however it is formatted: what fingerprints know it by."""

from __future__ import annotations

import ast
import functools
import linecache


@functools.lru_cache(maxsize=4096)
def statement(filename: str, line: int) -> str:
    """The innermost statement that the line is of, on one line, without comments; of a block only its head.

    Empty: the file cannot be parsed, or no statement is there.
    """
    around = [entry for entry in _statements(filename) if entry[0] <= line <= entry[1]]
    # The innermost begins last.
    return _written(max(around, key=lambda entry: entry[0])[2]) if around else ""


@functools.cache
def _statements(filename: str) -> tuple[tuple[int, int, ast.stmt], ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        (node.lineno, _last(node), node) for node in ast.walk(tree) if isinstance(node, ast.stmt)
    )


def _last(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _written(node: ast.stmt) -> str:
    if not hasattr(node, "body"):
        return ast.unparse(node)
    inside = (ast.stmt, ast.ExceptHandler, ast.match_case)
    head = [child for child in ast.iter_child_nodes(node) if not isinstance(child, inside)]
    return " ".join([type(node).__name__, *map(ast.unparse, head)])
