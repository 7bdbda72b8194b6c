"""Measure the structure of the package: size, shape, import cycles and silenced lint.

Run it as ``python scripts/house.py [FOLDER]``; the folder is the package to measure, ``opcheck`` by
default. Code lines are lines that hold code: neither blank, nor a comment, nor part of a docstring.
A room is an entry at the top of the package. Imports inside of functions count as imports.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx
from tabulate import tabulate

#: Tokens that make no line a line of code.
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOQA = re.compile(r"#\s*noqa")
LONG_LINE = 120


class Module(NamedTuple):
    """One file of the package, parsed."""

    name: str
    room: str
    text: str
    tree: ast.Module
    code: frozenset[int]
    comments: int


def docstring_lines(tree: ast.Module) -> set[int]:
    """The numbers of the lines that docstrings take."""
    owners = (ast.Module, ast.ClassDef, *_DEFINITIONS)
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }


def read(path: Path, package: Path) -> Module:
    """Parse one file and count its lines of code and of comments."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = {
        line
        for token in tokens
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    parts = path.relative_to(package.parent).with_suffix("").parts
    return Module(
        name=".".join(parts[:-1] if parts[-1] == "__init__" else parts),
        room=parts[1],
        text=text,
        tree=tree,
        code=frozenset(lines - docstring_lines(tree)),
        comments=sum(token.type == tokenize.COMMENT for token in tokens),
    )


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield each dotted name that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(modules: dict[str, Module]) -> nx.DiGraph[str]:
    """Return the imports between the modules of the package; a name leads to its module."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(modules)
    for module in modules.values():
        for name in imported_names(module.tree):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module.name:
                graph.add_edge(module.name, target)
    return graph


def room_graph(graph: nx.DiGraph[str], modules: dict[str, Module]) -> nx.DiGraph[str]:
    """Return the imports between rooms; the package's own ``__init__`` is no room."""
    rooms: nx.DiGraph[str] = nx.DiGraph()
    for importer, imported in graph.edges:
        ends = modules[importer].room, modules[imported].room
        if ends[0] != ends[1] and "__init__" not in ends:
            rooms.add_edge(*ends)
    return rooms


def cycles(graph: nx.DiGraph[str]) -> list[list[str]]:
    """Return the groups of nodes that import each other."""
    components = nx.strongly_connected_components(graph)
    return sorted(sorted(component) for component in components if len(component) > 1)


def functions(module: Module) -> Iterator[tuple[int, str]]:
    """Yield each function's number of code lines and its name."""
    for node in ast.walk(module.tree):
        if isinstance(node, _DEFINITIONS):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            yield sum(line in module.code for line in span), f"{module.name}:{node.name}"


def main() -> None:
    """Print the measurements of the package."""
    package = Path(sys.argv[1] if len(sys.argv) > 1 else "opcheck").resolve()
    read_modules = [read(path, package) for path in sorted(package.rglob("*.py"))]
    modules = {module.name: module for module in read_modules}
    graph = import_graph(modules)

    files = Counter(module.room for module in read_modules)
    code: Counter[str] = Counter()
    for module in read_modules:
        code[module.room] += len(module.code)
    rows = [(room, files[room], lines) for room, lines in code.most_common()]
    print(
        tabulate([*rows, ("total", files.total(), code.total())], ["room", "files", "code lines"])
    )

    sizes = sorted(size for module in read_modules for size, _ in functions(module))
    longest = sorted(
        (entry for module in read_modules for entry in functions(module)), reverse=True
    )
    texts = "\n".join(module.text for module in read_modules)
    module_cycles, room_cycles = cycles(graph), cycles(room_graph(graph, modules))
    comments = sum(module.comments for module in read_modules)
    entries = [path for path in package.iterdir() if path.name != "__pycache__"]
    print(f"\nentries at the top     {len(entries)}")
    print(f"import cycles          {len(module_cycles)} of files, {len(room_cycles)} of rooms")
    for cycle in module_cycles + room_cycles:
        print("  " + ", ".join(cycle))
    print(f"comments per code line {comments / code.total():.2f}")
    print(f"noqa                   {len(_NOQA.findall(texts))}")
    print(f"lines over {LONG_LINE}         {sum(len(li) > LONG_LINE for li in texts.splitlines())}")
    print(
        f"function code lines    median {sizes[len(sizes) // 2]}, p90 {sizes[len(sizes) * 9 // 10]}"
    )
    print("longest functions")
    print(tabulate(longest[:10], tablefmt="plain"))


if __name__ == "__main__":
    main()
