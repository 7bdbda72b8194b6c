"""One file's syntax tree: what its names are bound to, and what encloses what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)


class Binding(NamedTuple):
    """A place that binds a name; value None: nobody knows to what (a parameter, a loop)."""

    value: ast.expr | None
    node: ast.AST


class Program:
    """A parsed file.  Nothing of it is run or imported."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        #: every node, an outer one before what is in it, in the order of the source.
        self.nodes: list[ast.AST] = []
        #: local name -> dotted name of what was imported, wherever in the file.
        self.imports: dict[str, str] = {}
        self._bindings: dict[tuple[ast.AST, str], list[Binding]] = {}
        self._globals: set[tuple[ast.AST, str]] = set()
        self._grow()
        for node in self.nodes:
            self._bind(node)

    def _grow(self) -> None:
        # A loop and not a recursion: machine-made files nest deeper than Python's stack.
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            self.nodes.append(node)
            children = list(ast.iter_child_nodes(node))
            for child in children:
                # Contexts and operators are shared by all the nodes that have them.
                if not isinstance(child, (ast.expr_context, ast.operator, ast.boolop, ast.cmpop)):
                    self.parents[child] = node
            waiting.extend(reversed(children))
            if isinstance(node, ast.Global):
                scope = self.scope(node)
                self._globals |= {(scope, name) for name in node.names}

    # What encloses what

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """Pairs of a node and what holds it, from the node up to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield node, parent
            node = parent

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, class or module that the names of a node belong to."""
        return next(
            (parent for _, parent in self.ancestors(node) if isinstance(parent, _SCOPES)), self.tree
        )

    def function(self, node: ast.AST) -> str:
        """The name of the function around a node; empty: there is none."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = (parent for _, parent in self.ancestors(node) if isinstance(parent, functions))
        return next((function.name for function in found), "")

    # What names are

    def dotted(self, node: ast.AST | None) -> str:
        """``torch.cuda.amp.autocast``, however it was imported; empty: not an imported name."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute):
            value = self.dotted(node.value)
            return f"{value}.{node.attr}" if value else ""
        return ""

    def bindings(self, node: ast.expr) -> list[Binding]:
        """Where the name, or the ``self.name``, is bound; empty: not in this file."""
        if isinstance(node, ast.Attribute):
            owner = next((p for _, p in self.ancestors(node) if isinstance(p, ast.ClassDef)), None)
            return self._bindings.get((owner, f"self.{node.attr}"), []) if owner else []
        if not isinstance(node, ast.Name):
            return []
        scope, first = self.scope(node), True
        while True:
            # The names of a class are not seen from its methods.
            if (first or not isinstance(scope, ast.ClassDef)) and (
                found := self._bindings.get((scope, node.id))
            ):
                return found
            if scope is self.tree:
                return []
            scope, first = self.scope(scope), False

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports |= dict(_imported(node))
        elif isinstance(node, ast.arg):
            function = self.parents[self.parents[node]]
            self._bindings.setdefault((function, node.arg), []).append(Binding(None, node))
        elif isinstance(node, _NAMED):
            if node.name:
                self._name(node.name, None, node)
        else:
            for target, value in _bound(node):
                self._target(target, value, node)

    def _target(self, target: ast.expr, value: ast.expr | None, node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self._name(target.id, value, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            parts = value.elts if same and isinstance(value, (ast.Tuple, ast.List)) else ()
            for number, part in enumerate(target.elts):
                self._target(part, parts[number] if parts else None, node)
        elif isinstance(target, ast.Starred):
            self._target(target.value, None, node)
        elif isinstance(target, ast.Attribute) and _is_self(target.value):
            owner = next((p for _, p in self.ancestors(node) if isinstance(p, ast.ClassDef)), None)
            if owner is not None:
                key = (owner, f"self.{target.attr}")
                self._bindings.setdefault(key, []).append(Binding(value, node))

    def _name(self, name: str, value: ast.expr | None, node: ast.AST) -> None:
        scope = self.scope(node)
        if (scope, name) in self._globals:
            scope = self.tree
        self._bindings.setdefault((scope, name), []).append(Binding(value, node))


def _bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """The targets of a statement that gives values, each with its value."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        if node.value is not None:
            yield node.target, node.value
    elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.target, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    else:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield alias.asname or alias.name, f"{module}.{alias.name}"
