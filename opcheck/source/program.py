"""Parses a file to a syntax tree with the bindings of names and the nodes around a node."""

import ast
import functools
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, NamedTuple

from opcheck.common.grouping import group_values
from opcheck.source.call_tables import read_words

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module))
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
#: The fields without nodes of their own.
_WITHOUT_NODES = read_words("fields_without_nodes")
#: The kinds of node whose fields are texts and numbers alone.
_LEAVES = (ast.Constant, ast.Global, ast.MatchSingleton, ast.Nonlocal)
#: The kinds of node with None in a list: ``{**x}``, and keyword parameters without a default.
_WITH_GAPS = frozenset((ast.Dict, ast.arguments))
#: The kinds of node that bind names.
_BINDING = frozenset({
    *_NAMED, ast.Import, ast.ImportFrom, ast.arg, ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For,
    ast.AsyncFor, ast.comprehension, ast.withitem,
})  # fmt: skip
#: The names that the rules look for in a file with ``from torch import *``; ``torch.__all__`` of 2.13 has these, and
#: not the modules (cuda, backends, nn).
_OF_TORCH = read_words("of_torch")
_REEXPORTED = _OF_TORCH | {"torch", "nn", "cuda", "amp", "distributed"}
#: No name in the tables of the rules has as many parts.
_LONGEST_NAME = 30


class Binding(NamedTuple):
    """A place that binds a name; the value is None where it is unknown (a parameter, a loop)."""

    value: ast.expr | None
    node: ast.AST


#: The bindings of a name that a file does not bind.
_NONE: list[Binding] = []


class NodePlace(NamedTuple):
    """The position of a node in the tree."""

    parent: ast.AST
    #: the parent's field with the node
    field: str
    #: its index in the field; 0 where the field is no list
    position: int
    #: the function, class or module around the node
    scope: ast.AST


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that contain nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        without = _WITHOUT_NODES if kind.__name__ == "TypeAlias" else {*_WITHOUT_NODES, "name"}
        fields = () if issubclass(kind, _LEAVES) else kind._fields
        self[kind] = tuple(field for field in fields if field not in without)
        return self[kind]


_FIELDS = _Fields()


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes inside of it, in no particular order; ``ast.walk`` takes twice as long."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        for field in _FIELDS[type(node)]:
            value = getattr(node, field, None)
            if type(value) is list:
                waiting += [child for child in value if child is not None]
            elif value is not None:
                waiting.append(value)


class Program:
    """A parsed file, which is neither run nor imported.

    A block may have 100,000 statements, so a question about a node must not visit its neighbours.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        #: by node, its parent and the function, class or module around it
        self._parents: dict[ast.AST, tuple[ast.AST, ast.AST]] = {}
        #: by node, the parent's field with the node and the index there; filled for all children of a parent at once
        self._positions: dict[ast.AST, tuple[str, int]] = {}
        #: the last result of ``dotted``: a dozen rules ask for the same node in a row
        self._named: tuple[ast.AST | None, str] = (None, "")
        #: every node except shared ones, an outer node before its children, in the order of the
        #: source
        self.nodes: list[ast.AST] = []
        #: the dotted names of imported objects by their local names, of all imports in the file
        self.imports: dict[str, str] = {}
        self._bindings: dict[tuple[ast.AST, str], list[Binding]] = {}
        self._globals: set[tuple[ast.AST, str]] = set()
        #: whether the file has ``from torch import *``, and no such import of another library below it
        self._has_star = False
        #: the modules of the project that the file imports all names of: ``.base``
        self._stars: list[str] = []
        #: returns what a name of another file of the project imports there; empty where it is that file's own
        self.follow: Callable[[str], str] = lambda _find_dotted: ""
        self._grow()
        for node in self.nodes:
            if type(node) in _BINDING:
                self._bind(node)

    def _grow(self) -> None:
        # A loop and not a recursion: machine-made files nest deeper than Python's stack.  A file of 100,000 lines has
        # 700,000 nodes, so the loop does as little as it can for each.
        parents, nodes, fields_by_kind = self._parents, self.nodes, _FIELDS
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            kind = type(node)
            fields = fields_by_kind[kind]
            if not fields:
                if isinstance(node, ast.Global):
                    self._globals |= {(parents[node][1], name) for name in node.names}
                continue
            shared = (node, node if kind in _SCOPES else parents[node][1])
            children: list[Any] = []
            for field in fields:
                value = getattr(node, field)
                if type(value) is list:
                    children += value
                elif value is not None:
                    children.append(value)
            if kind in _WITH_GAPS:
                children = [child for child in children if child is not None]
            for child in children:
                parents[child] = shared
            children.reverse()
            waiting += children

    # -- around a node ---------------------------------------------------------------------------

    def place(self, node: ast.AST) -> NodePlace | None:
        """Return the position of a node; None for the module."""
        around = self._parents.get(node)
        if around is None:
            return None
        parent, scope = around
        if node not in self._positions:
            for field in _FIELDS[type(parent)]:
                value = getattr(parent, field)
                children = value if type(value) is list else [value]
                self._positions.update((child, (field, index)) for index, child in enumerate(children))
        return NodePlace(parent, *self._positions[node], scope)

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Return the parent of a node; None for the module."""
        around = self._parents.get(node)
        return around[0] if around else None

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, NodePlace]]:
        """A node with its position, then its parent, and so on up to the module."""
        while (place := self.place(node)) is not None:
            yield node, place
            node = place.parent

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, class or module that the names of a node belong to."""
        around = self._parents.get(node)
        return around[1] if around else self.tree

    def function(self, node: ast.AST) -> str:
        """Return the name of the function around a node, or empty."""
        scope = self._around(node, Function)
        return scope.name if isinstance(scope, Function) else ""

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class around a node, also where it is in a method."""
        scope = self._around(node, ast.ClassDef)
        return scope if isinstance(scope, ast.ClassDef) else None

    def _around(self, node: ast.AST, kind: type[ast.AST] | UnionType) -> ast.AST:
        """The innermost scope of a kind around a node; the module where there is none."""
        scope = self.scope(node)
        while scope is not self.tree and not isinstance(scope, kind):
            scope = self.scope(scope)
        return scope

    @functools.cached_property
    def uses(self) -> dict[str, list[ast.AST]]:
        """Return the nodes that are a name or an attribute, by that name."""
        nodes = (node for node in self.nodes if isinstance(node, (ast.Name, ast.Attribute)))
        return group_values((node.id if isinstance(node, ast.Name) else node.attr, node) for node in nodes)

    # -- names -----------------------------------------------------------------------------------

    def dotted_name(self, node: ast.AST | None) -> str:
        """The full name, ``torch.cuda.amp.autocast``, of an imported object; else empty."""
        if node is not self._named[0]:
            self._named = (node, self._find_dotted(node))
        return self._named[1]

    def _find_dotted(self, node: ast.AST | None) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _LONGEST_NAME:
            parts.append(node.attr)
            node = node.value
        first = self._full_name(node.id) if isinstance(node, ast.Name) else ""
        return ".".join((first, *reversed(parts))) if first else ""

    def _full_name(self, name: str) -> str:
        """The dotted name of an imported object; after ``from torch import *`` that may be a name of torch."""
        full = self.imports.get(name, "")
        if full:
            is_torch = full.rpartition(".")[2] in _REEXPORTED
            return (is_torch and not full.startswith("torch") and self.follow(full)) or full
        if not (self._has_star or self._stars) or name not in _REEXPORTED:
            return ""
        if self.module_bindings(name):
            return ""
        if self._has_star and name in _OF_TORCH:
            return f"torch.{name}"
        return next(filter(None, (self.follow(f"{star}.{name}") for star in self._stars)), "")

    def may_be_imported(self, name: str) -> bool:
        """Return whether an import may bind a name."""
        return name in self.imports or self._has_star or bool(self._stars)

    def full_name(self, name: str) -> str:
        """Return the dotted name that a name at the top level of the file was imported as, or empty."""
        return "" if self.module_bindings(name) else self._full_name(name)

    def bindings(self, node: ast.expr) -> list[Binding]:
        """The places that bind a name or a ``self.name``; empty if none is in this file."""
        if isinstance(node, ast.Attribute):
            owner = self.class_around(node)
            return self.members(owner, node.attr) if owner else []
        if not isinstance(node, ast.Name):
            return []
        scope, first = self.scope(node), True
        while True:
            # Methods do not see the names of their class.
            if (first or not isinstance(scope, ast.ClassDef)) and (bindings := self._bindings.get((scope, node.id))):
                return bindings
            if scope is self.tree:
                return []
            scope, first = self.scope(scope), False

    def members(self, owner: ast.ClassDef, name: str) -> list[Binding]:
        """The places that bind an attribute in the methods of a class."""
        return self._bindings.get((owner, f"self.{name}"), [])

    def only_binding(self, node: ast.expr) -> Binding | None:
        """The place that binds a name or a ``self.name``; None where there are more, or none."""
        bindings = self.bindings(node)
        return bindings[0] if len(bindings) == 1 else None

    def only_value(self, node: ast.expr) -> ast.expr | None:
        """The only value that the file gives to a name; None where there are more, or it is unknown."""
        binding = self.only_binding(node)
        return binding.value if binding else None

    def bound_values(self) -> Iterator[tuple[str, ast.expr]]:
        """The names (``x``, ``self.x``) that the file binds anywhere, with each value that it gives them."""
        for (_, name), bindings in self._bindings.items():
            yield from ((name, value) for value, _ in bindings if value is not None)

    def module_bindings(self, name: str) -> list[Binding]:
        """The places that bind a name at the top level of the file."""
        return self._bindings.get((self.tree, name), [])

    def top_bindings(self) -> Iterator[tuple[str, str, Binding]]:
        """The names bound at the top level and in classes there: the class, or empty, the name, and the binding."""
        for (scope, name), bindings in self._bindings.items():
            owner = scope.name if isinstance(scope, ast.ClassDef) else ""
            if scope is self.tree or (owner and name == "__init__"):
                yield from ((owner, name, binding) for binding in bindings)

    def module_names(self) -> frozenset[str]:
        """The names that the file binds at its top level."""
        return frozenset(name for scope, name in self._bindings if scope is self.tree)

    def bound_in(self, scope: ast.AST, name: str) -> list[Binding]:
        """The places that bind a name as a function sees it: in itself, or else around it."""
        bindings = self._bindings.get((scope, name))
        while not bindings and scope is not self.tree:
            scope = self.scope(scope)
            # Methods do not see the names of their class.
            bindings = None if isinstance(scope, ast.ClassDef) else self._bindings.get((scope, name))
        return bindings or _NONE

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported = dict(_list_imports(node))
            self.imports |= imported
            if star := imported.get("*"):
                further = self._has_star and star.startswith(("torch.", "."))
                self._has_star = star == "torch.*" or further
                if not star.startswith("torch."):
                    self._stars.append(star[:-2])
        elif isinstance(node, ast.arg):
            self._bindings.setdefault((self.scope(node), node.arg), []).append(Binding(None, node))
        elif isinstance(node, _NAMED):
            if node.name:
                self._name(node.name, None, node)
        else:
            for target, value in _list_targets(node):
                self._target(target, value, node)

    def _target(self, target: ast.expr, value: ast.expr | None, node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self._name(target.id, value, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            is_same = len(values) == len(target.elts)
            for number, part in enumerate(target.elts):
                self._target(part, values[number] if is_same else None, node)
        elif isinstance(target, ast.Starred):
            self._target(target.value, None, node)
        elif isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
            owner = self.class_around(node)
            if owner is not None:
                key = (owner, f"self.{target.attr}")
                self._bindings.setdefault(key, []).append(Binding(value, node))

    def _name(self, name: str, value: ast.expr | None, node: ast.AST) -> None:
        scope = self.scope(node)
        if (scope, name) in self._globals:
            scope = self.tree
        self._bindings.setdefault((scope, name), []).append(Binding(value, node))
        if isinstance(scope, ast.ClassDef) and isinstance(node, (ast.Assign, ast.AnnAssign)):
            # Methods see it as self.name; a dataclass, or who uses the class, may give it another value.
            own = self._bindings.setdefault((scope, f"self.{name}"), [])
            own += [Binding(value, node), Binding(None, node)]


def _list_targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The targets of an assignment, each with its value."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        if node.value is not None:
            yield node.target, node.value
    elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, None


def _list_imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    else:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield alias.asname or alias.name, f"{module}.{alias.name}"
