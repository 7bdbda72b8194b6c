"""Replacements for what MPS lacks: small functions and patterns, each tested and itself audited.

The table (``remedies.yaml``) has the purpose of each; the code is a text, ``op_lists/replacements.py``, which
opcheck prints and never runs.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from opcheck.common import documents
from opcheck.common.python_source import parse
from opcheck.common.versions import Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import shipped_directory
from opcheck.model.records import Record

#: The targets of the simulated Mac that every remedy is tested on: (torch, macOS).
TESTED = (("2.1", "13.0"), ("2.4", "13.0"), ("2.4", "14.0"), ("2.13", "15.0"), ("2.15", "15.0"))

_PLACE = re.compile(r"\{(\w+)\}")


class Remedy(Record, frozen=True, kw_only=True):
    """One way out."""

    id: str
    title: str
    #: what it replaces: an operator (``aten::polar``), or trait/how of an origin (``float64/numpy``)
    kinds: tuple[str, ...]
    #: the program's code before and after the change; ``{x}`` is the user's own name.
    before: str
    after: str
    #: the functions of replacements.py that ``after`` calls, in the order of their definition; none: a pattern.
    functions: tuple[str, ...] = ()
    #: relative error of norms within which it equals ``before``; 0: the same numbers.
    tolerance: float = 0.0
    #: relative error of its gradient; None: it has no gradient, or no meaningful one.
    gradient: float | None = None
    #: what else a user should know
    remark: str = ""
    #: the tested targets where each of its calls is native.
    targets: tuple[tuple[str, str], ...] = TESTED

    def is_offered(self, target: Target) -> bool:
        """Return whether the remedy was found native on a target that is no newer than this one."""
        return any(
            Version.parse(torch) <= target.torch and Version.parse(macos) <= target.macos
            for torch, macos in self.targets
        )

    def use(self, names: Mapping[str, str] | None = None) -> str:
        """Return the replacement line, with the user's own names."""
        return fill_pattern(self.after, names or {})

    def code(self, names: Mapping[str, str] | None = None) -> str:
        """Return the whole replacement: the source of the functions, and the line that calls them."""
        parts = [source(name) for name in self.functions]
        text = "\n\n\n".join((*parts, self.use(names)))
        imports = [line for line, word in _TABLE["imports"].items() if re.search(word, text)] if parts else []
        return "\n".join(imports) + ("\n\n\n" if imports else "") + text

    @property
    def page(self) -> str:
        """Return the remedy's page in ``opcheck explain``."""
        gradient = f", gradients within {self.gradient:g}" if self.gradient is not None else ""
        return str(_TABLE["page"]).format(
            kinds=", ".join(self.kinds),
            before=fill_pattern(self.before, {}),
            after=self.code(),
            same=f"within a relative error of {self.tolerance:g}" if self.tolerance else "no difference",
            gradient=gradient,
            offered=", ".join(f"torch {torch} on macOS {macos}" for torch, macos in self.targets),
            remark=f"\n\n{self.remark}" if self.remark else "",
        )


def fill_pattern(pattern: str, names: Mapping[str, str]) -> str:
    """Return the pattern with names in its places; a place that is not given keeps its own name."""
    return _PLACE.sub(lambda match: names.get(match[1], match[1]), pattern)


@cache
def _sources() -> dict[str, str]:
    text = documents.read_text(shipped_directory() / "replacements.py")
    nodes = (node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return {node.name: ast.get_source_segment(text, node) or "" for node in nodes}


def source(name: str) -> str:
    """Return the source text of a function or class of replacements.py.

    Raises:
        KeyError: it has none of that name.
    """
    return _sources()[name]


_TABLE: dict[str, Any] = load_shipped(__file__, "remedies.yaml")
REMEDIES = tuple(
    msgspec.convert({**group.get("defaults", {}), **remedy}, Remedy)
    for group in _TABLE["groups"]
    for remedy in group["remedies"]
)

BY_ID: dict[str, Remedy] = {remedy.id: remedy for remedy in REMEDIES}


def for_kind(kind: str, target: Target) -> Remedy | None:
    """Return the first remedy for a kind that is offered on the target; None if there is none.

    Args:
        kind: an operator without its overload (``aten::polar``), or trait/how of an origin (``float64/numpy``).
        target: the Mac.
    """
    return next((remedy for remedy in REMEDIES if kind in remedy.kinds and remedy.is_offered(target)), None)


# -- find the remedy that fits a finding, and rewrite the user's own line by it --

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
    remedies = [offered for kind in dict.fromkeys(kinds) if (offered := for_kind(kind, target))]
    fitting = (remedy for remedy in remedies if rewritten(remedy, text))
    remedy = next(fitting, next(iter(remedies), None))
    if remedy is None:
        return WayOut()
    return WayOut(f"opcheck explain {remedy.id} has tested code for it", rewritten(remedy, text))


def operator_way_out(op: str, target: Target, text: str = "") -> WayOut:
    """Return the remedy for an operator; for a transform, the remedy of the function that the line calls."""
    base = op.partition(".")[0]
    family = base.removeprefix("aten::_").partition("_")[0]
    relatives = (kind for remedy in REMEDIES for kind in remedy.kinds if kind.startswith(f"{family}/"))
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
            return text.replace(source, fill_pattern(re.sub(rf"{_MARK}(\w+)", r"{\1}", value), names), 1) + remark
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
