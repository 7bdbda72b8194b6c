"""Find the tested remedy that fits a finding, and rewrite the user's own line by it.

The line provides the names that the remedy's pattern leaves open.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcheck.common.python_source import parse
from opcheck.common.versions import Target
from opcheck.judge.remedies import REMEDIES, for_kind
from opcheck.judge.remedies.remedy import Remedy, fill_pattern

_PLACE = re.compile(r"\{(\w+)\}")
_MARK = "OPCHECK_"


class WayOut(NamedTuple):
    """The part of a finding that names a remedy; both fields are empty if there is none."""

    hint: str = ""
    line: str = ""


def way_out(kinds: Iterable[str], target: Target, text: str = "") -> WayOut:
    """Return the first remedy for these kinds; a remedy that fits the line comes first.

    Args:
        kinds: as in ``Remedy.kinds``, the most telling first.
        target: the Mac: a remedy is offered where each of its calls is native.
        text: the user's line.
    """
    kinds = tuple(kinds)
    remedies = {kind: for_kind(kind, target) for kind in kinds}
    fitting = [remedy for remedy in remedies.values() if remedy and rewritten(remedy, text)]
    remedy = next(iter(fitting), next((offered for offered in remedies.values() if offered), None))
    if remedy is None:
        return WayOut()
    return WayOut(f"opcheck explain {remedy.id} has tested code for it", rewritten(remedy, text))


def operator_way_out(op: str, target: Target, text: str = "") -> WayOut:
    """Return the remedy for an operator; for a transform, the remedy of the function that the line calls."""
    base = op.partition(".")[0]
    family = base.removeprefix("aten::_").partition("_")[0]
    relatives = (
        kind for remedy in REMEDIES for kind in remedy.kinds if kind.startswith(f"{family}/")
    )
    matching = [kind for kind in relatives if re.search(rf"\b{kind.partition('/')[2]}\(", text)]
    return way_out((*matching, base), target, text)


def rewritten(remedy: Remedy, line: str) -> str:
    """Return the line as the remedy rewrites it; empty if the line does not match the remedy's pattern.

    The remedy's ``before`` is looked for in the line as it is: the same call with the same arguments, each name
    in its place standing for whatever is written there.
    """
    before, after = _assignment(remedy.before), _assignment(remedy.after)
    text = textwrap.dedent(line).strip()
    tree = _parse(text)
    if before is None or after is None or tree is None:
        return ""
    for node in ast.walk(tree):
        names: dict[str, str] = {}
        if not isinstance(node, ast.expr) or not _same(before.value, node, names, text):
            continue
        if ast.dump(before.targets[0]) == ast.dump(after.targets[0]):
            value = ast.get_source_segment(_mark_names(remedy.after), after.value) or ""
            source = ast.get_source_segment(text, node) or ""
            remark = "  #" + remedy.after.partition("  #")[2] if "  #" in remedy.after else ""
            return (
                text.replace(
                    source, fill_pattern(re.sub(rf"{_MARK}(\w+)", r"{\1}", value), names), 1
                )
                + remark
            )
        statement = tree.body[0]
        if not isinstance(statement, ast.Assign) or statement.value is not node:
            continue
        if _same(before.targets[0], statement.targets[0], names, text):
            return remedy.use(names)
    return ""


def _assignment(pattern: str) -> ast.Assign | None:
    """Parse a pattern such as ``{out} = {a} * {b}`` into a statement whose places are marked names."""
    try:
        body = ast.parse(_mark_names(pattern)).body
    except SyntaxError:
        return None
    return body[0] if len(body) == 1 and isinstance(body[0], ast.Assign) else None


def _mark_names(pattern: str) -> str:
    return _PLACE.sub(lambda match: _MARK + match[1], pattern)


def _parse(text: str) -> ast.Module | None:
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
