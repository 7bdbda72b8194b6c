"""Rewrite a user's own line by a remedy; the line provides the names that the remedy's pattern leaves open."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from opcheck.common.python_source import parse
from opcheck.judge.remedies.remedy import Remedy, filled

_PLACE = re.compile(r"\{(\w+)\}")
_MARK = "OPCHECK_"


def rewritten(remedy: Remedy, line: str) -> str:
    """Return the line as the remedy rewrites it; empty if the line does not match the remedy's pattern.

    The remedy's ``before`` is looked for in the line as it is: the same call with the same arguments, each name
    in its place standing for whatever is written there.
    """
    before, after = _assignment(remedy.before), _assignment(remedy.after)
    text = textwrap.dedent(line).strip()
    tree = _parsed(text)
    if before is None or after is None or tree is None:
        return ""
    for node in ast.walk(tree):
        names: dict[str, str] = {}
        if not isinstance(node, ast.expr) or not _same(before.value, node, names, text):
            continue
        if ast.dump(before.targets[0]) == ast.dump(after.targets[0]):
            value = ast.get_source_segment(_marked(remedy.after), after.value) or ""
            source = ast.get_source_segment(text, node) or ""
            remark = "  #" + remedy.after.partition("  #")[2] if "  #" in remedy.after else ""
            return text.replace(source, filled(_unmarked(value), names), 1) + remark
        statement = tree.body[0]
        if not isinstance(statement, ast.Assign) or statement.value is not node:
            continue
        if _same(before.targets[0], statement.targets[0], names, text):
            return remedy.use(names)
    return ""


def _assignment(pattern: str) -> ast.Assign | None:
    """Parse a pattern such as ``{out} = {a} * {b}`` into a statement whose places are marked names."""
    try:
        body = ast.parse(_marked(pattern)).body
    except SyntaxError:
        return None
    return body[0] if len(body) == 1 and isinstance(body[0], ast.Assign) else None


def _marked(pattern: str) -> str:
    return _PLACE.sub(lambda match: _MARK + match[1], pattern)


def _unmarked(text: str) -> str:
    return re.sub(rf"{_MARK}(\w+)", r"{\1}", text)


def _parsed(text: str) -> ast.Module | None:
    for candidate in (text, f"{text} pass"):
        try:
            tree = parse(candidate)
        except SyntaxError:
            continue
        return tree if tree.body else None
    return None


def _same(pattern: ast.AST, node: ast.AST, names: dict[str, str], text: str) -> bool:
    """Return whether the node matches the pattern, and add the values of its places to ``names``."""
    if isinstance(pattern, ast.Name) and pattern.id.startswith(_MARK):
        name, source = pattern.id.removeprefix(_MARK), ast.get_source_segment(text, node) or ""
        return bool(source) and names.setdefault(name, source) == source
    if type(pattern) is not type(node):
        return False
    pattern_fields, node_fields = list(_fields(pattern)), list(_fields(node))
    return len(pattern_fields) == len(node_fields) and all(
        _same(expected, actual, names, text)
        if isinstance(expected, ast.AST) and isinstance(actual, ast.AST)
        else expected == actual
        for expected, actual in zip(pattern_fields, node_fields, strict=True)
    )


def _fields(node: ast.AST) -> Iterator[object]:
    """Yield the content of a node, in order; how a name is used (ctx) does not matter."""
    for name, value in ast.iter_fields(node):
        if name in {"ctx", "type_comment", "kind"}:
            continue
        if isinstance(value, list):
            yield len(value)
            yield from value
        else:
            yield value
