"""Imports of PyTorch's autocast that no line uses any more after a file was corrected."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from opcheck.common.python_source import lines_with_endings
from opcheck.source import source
from opcheck.source.edits import Edit, apply
from opcheck.source.program import walk

#: The modules whose functions fixes replace.
_MODULES = {"torch.cuda.amp", "torch.cuda.amp.autocast_mode"}


def without_orphans(before: str, after: str, module: str, elsewhere: Iterable[str]) -> str:
    """Leave out the names that the text before used and the text after only imports.

    Only imports on a line of their own at the top level are changed, and none that another file may import from here.

    Args:
        before: the text before the fixes.
        after: the text after them.
        module: the last part of the module's name.
        elsewhere: the other texts of the project.
    """
    if not any(name in after for name in _MODULES):
        return after
    tree, old = source.parse(after, ""), source.parse(before, "")
    unused = _names(old) - _names(tree)
    lines = lines_with_endings(after)
    edits: list[tuple[Edit, ...]] = []
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or node.module not in _MODULES:
            continue
        kept = [each for each in node.names if (each.asname or each.name) not in unused]
        line = lines[node.lineno - 1].rstrip("\r\n")
        gone = [each.asname or each.name for each in node.names if each not in kept]
        if not gone or line != ast.unparse(node) or _is_imported(gone, module, elsewhere):
            continue
        if kept:
            names = ast.ImportFrom(module=node.module, names=kept, level=0)
            edits.append(
                (Edit(node.lineno, 0, node.lineno, len(line.encode()), ast.unparse(names)),)
            )
        else:
            edits.append((Edit(node.lineno, 0, node.lineno + 1, 0, ""),))
    return apply(lines, edits)[0]


def _names(tree: ast.AST) -> set[str]:
    """The names that a text uses; a text such as ``"autocast"`` in ``__all__`` counts, too."""
    names = {node.id for node in walk(tree) if isinstance(node, ast.Name)}
    return names | {
        node.value
        for node in walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _is_imported(names: Iterable[str], module: str, elsewhere: Iterable[str]) -> bool:
    """Return whether another file imports one of the names, or all or unknown ones, from the module."""
    alternatives = "|".join(map(re.escape, names))
    pattern = re.compile(
        rf"^\s*from\s+[\w.]*\b{re.escape(module)}\s+import\b[^\n]*(?:\b(?:{alternatives})\b|[*(\\])"
        rf"|\b{re.escape(module)}\.(?:{alternatives})\b",
        re.MULTILINE,
    )
    return any(pattern.search(text) for text in elsewhere)
