"""Measure the structure of the package: size, shape, import cycles, silenced lint, names and prose.

Run it as ``python scripts/house.py [FOLDER]``; the folder is the package to measure, ``opcheck`` by default.
``--budget`` prints the figures as ``house.yaml`` has them. Code lines are lines of code: neither blank, nor a comment,
nor part of a docstring. A room is an entry at the top of the package. Imports inside of functions count as imports.

``house.yaml`` has the budget of each figure, which only falls; ``tests/test_house.py`` compares.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import networkx as nx
from tabulate import tabulate

#: Tokens that make no line a line of code.
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOQA = re.compile(r"#\s*noqa")
LONG_LINE = 120

#: Functions with one of these names, or with one word on -ed, are no verbs.  A participle that is spelled like its
#: verb (run, read, put, set, cut, split) does not count.
_NO_VERBS = re.compile(
    r"\w+ed|about|above|after|against|among|as|at|before|below|beside|between|bound|broken|brought|built|by|caught|chosen|"
    r"done|drawn|due|for|found|from|given|gone|grown|held|hidden|in|into|kept|known|left|like|lost|made|meant|"
    r"met|near|of|on|over|said|seen|sent|shown|since|sold|spent|spoken|stood|taken|than|thrown|to|told|under|"
    r"understood|until|upon|with|within|without|worn|written"
)
#: Bindings that do not name their value.
_NO_NOUNS = ("given", "known", "made")
#: The files that each feature has.
_CONVENTION = {"verb", "page"}
#: File names that say what form a module has, and not what it is about.
_SHAPES = ("records", "run", "parent", "engine", "tally")
#: The house's own dialect: personified programs, and relative clauses on prepositions.
DIALECT = re.compile(
    r"\b(?:told|tells?|said|says|asks|asked|knows|nobody|stands?|beside|holds?|anew|goes on|go on|went on)\b"
    r"|\b(?:of|in|from|to|with|by|on|for|at|under|after|before|without|about|through|into|than|as|against) "
    r"(?:which|what|whom|whose)\b"
    r"|\bone\b(?=[.,;:)]| (?:of|that|is|has|was|are|can|may|for|in|with|which)\b)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z']+")
#: A text of fewer words is a name.
_FEWEST_WORDS = 3
#: Code in a text is no prose.
_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`]*`", re.DOTALL)


class Module(NamedTuple):
    """One file of the package, parsed."""

    name: str
    room: str
    text: str
    #: the nodes of its syntax tree
    nodes: tuple[ast.AST, ...]
    #: the numbers of the lines of code
    code: frozenset[int]
    comments: tuple[str, ...]
    #: whether it is the ``__init__`` of a folder
    is_package: bool


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, *_DEFINITIONS)) and ast.get_docstring(node) is not None:
            statement = node.body[0]
            assert isinstance(statement, ast.Expr)
            assert isinstance(statement.value, ast.Constant)
            yield statement.value


def read(path: Path, package: Path) -> Module:
    """Parse one file and count its lines of code and of comments."""
    text = path.read_text(encoding="utf-8")
    nodes = tuple(ast.walk(ast.parse(text)))
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    parts = path.relative_to(package.parent).with_suffix("").parts
    return Module(
        name=".".join(parts[:-1] if parts[-1] == "__init__" else parts),
        room=parts[1],
        text=text,
        nodes=nodes,
        code=frozenset(lines.difference(*(range(d.lineno, (d.end_lineno or 0) + 1) for d in docstrings(nodes)))),
        comments=tuple(token.string for token in tokens if token.type == tokenize.COMMENT),
        is_package=parts[-1] == "__init__",
    )


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each dotted name that a module imports, wherever in it."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(modules: dict[str, Module]) -> nx.DiGraph[str]:
    """Return the imports between the modules of the package; a name leads to its module."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(modules)
    for module in modules.values():
        for name in imported_names(module.nodes):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module.name:
                graph.add_edge(module.name, target)
    return graph


def room_graph(graph: nx.DiGraph[str], modules: dict[str, Module]) -> nx.DiGraph[str]:
    """Return the imports between rooms; neither the package's own ``__init__`` is one, nor the registry of features."""
    rooms: nx.DiGraph[str] = nx.DiGraph()
    for importer, imported in graph.edges:
        ends = modules[importer].room, modules[imported].room
        registry = imported.endswith(".features")
        if ends[0] != ends[1] and "__init__" not in ends and not registry:
            rooms.add_edge(*ends)
    return rooms


def cycles(graph: nx.DiGraph[str]) -> list[list[str]]:
    """Return the groups of nodes that import each other."""
    components = nx.strongly_connected_components(graph)
    return sorted(sorted(component) for component in components if len(component) > 1)


def functions(module: Module) -> Iterator[tuple[int, str]]:
    """Yield each function's number of code lines and its name."""
    for node in module.nodes:
        if isinstance(node, _DEFINITIONS):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            yield sum(line in module.code for line in span), f"{module.name}:{node.name}"


def _used_twice(names: Iterable[str]) -> Counter[str]:
    """Return the names that are used twice or more, whether public or not, with their counts."""
    counts = Counter(name.lstrip("_") for name in names)
    return Counter({name: count for name, count in counts.items() if count > 1})


def measure_names(modules: Iterable[Module]) -> dict[str, Counter[str]]:
    """Return the names that a reader stumbles over, by kind, with their counts."""
    classes, participles, bindings = [], [], []
    files: list[str] = []
    for module in modules:
        if not module.is_package:
            files += {module.name.rpartition(".")[2]} - _CONVENTION
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                classes.append(node.name)
            elif isinstance(node, _DEFINITIONS):
                word = node.name.strip("_")
                if _NO_VERBS.fullmatch(word) and "_" not in word:
                    participles.append(word)
            elif isinstance(node, ast.arg):
                bindings.append(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bindings.append(node.id)
    return {
        "class names used twice": _used_twice(classes),
        "file names used twice": _used_twice(files),
        "files named by shape": Counter(name for name in files if name in _SHAPES),
        "one-word participles": Counter(participles),
        "bindings that name nothing": Counter(name for name in bindings if name in _NO_NOUNS),
    }


def _texts(module: Module) -> Iterator[str]:
    """Yield the sentences that users read: texts of three words or more, as in messages and helps."""
    left_out = set(docstrings(module.nodes))
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_sentence = len(node.value.split()) >= _FEWEST_WORDS
            if is_sentence and node not in left_out:
                yield node.value


def measure_prose(texts: Iterable[str]) -> tuple[int, Counter[str]]:
    """Return the number of words of texts, without code, and the words of the house's dialect among them."""
    words, hits = 0, Counter[str]()
    for text in texts:
        plain = _CODE.sub("", text)
        words += len(_WORD.findall(plain))
        hits.update(match[0].lower() for match in DIALECT.finditer(plain))
    return words, hits


def prose(modules: Sequence[Module], root: Path) -> dict[str, tuple[int, Counter[str]]]:
    """Return the prose of the package and of the documentation beside it, by kind."""
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md"]
    return {
        "docstrings": measure_prose(str(each.value) for module in modules for each in docstrings(module.nodes)),
        "comments": measure_prose(text for module in modules for text in module.comments),
        "texts for users": measure_prose(text for module in modules for text in _texts(module)),
        "docs": measure_prose(page.read_text(encoding="utf-8") for page in pages if page.is_file()),
    }


def read_all(package: Path) -> list[Module]:
    """Parse the files of a package."""
    return [read(path, package) for path in sorted(package.rglob("*.py"))]


def measure(package: Path, modules: Sequence[Module]) -> dict[str, tuple[float, Counter[str]]]:
    """Return each figure that ``house.yaml`` has a budget for, with what it counts most."""
    by_name = {module.name: module for module in modules}
    graph = import_graph(by_name)
    found = [*cycles(graph), *cycles(room_graph(graph, by_name))]
    scripts = read_all(package.parent / "scripts")
    result = {
        "code lines": (float(sum(len(module.code) for module in modules)), Counter[str]()),
        "code lines of scripts": (float(sum(len(module.code) for module in scripts)), Counter()),
        "import cycles": (float(len(found)), Counter({", ".join(cycle): 1 for cycle in found})),
        "noqa": (float(sum(len(_NOQA.findall(module.text)) for module in modules)), Counter()),
    }
    for kind, names in measure_names(modules).items():
        result[kind] = (len(names) if kind.endswith("twice") else names.total(), names)
    for kind, (words, hits) in prose(modules, package.parent).items():
        result[f"dialect in {kind}"] = (round(1000 * hits.total() / max(words, 1), 1), hits)
    return result


def figures(package: Path) -> dict[str, float]:
    """Return the figures alone; those of prose are hits per 1,000 words."""
    return {kind: value for kind, (value, _) in measure(package, read_all(package)).items()}


def over_budget(measured: Mapping[str, float], budget: Mapping[str, float], tolerance: float = 0.02) -> list[str]:
    """Return a line for each figure that is above its budget, or so far below that the budget is to be lowered.

    Args:
        measured: ``figures`` of the package.
        budget: the content of ``house.yaml``.
        tolerance: the share of a budget that may be unused.
    """
    lines = []
    for figure in sorted({*measured, *budget}):
        reached, allowed = measured.get(figure), budget.get(figure)
        if reached is None or allowed is None:
            lines.append(f"{figure}: house.yaml and house.py differ")
        elif reached > allowed:
            lines.append(f"{figure}: {reached:g} is above the budget of {allowed:g} in scripts/house.yaml")
        elif allowed - reached > max(1, tolerance * allowed):
            lines.append(f"{figure}: {reached:g} is reached; lower the budget of {allowed:g}")
    return lines


def main() -> None:
    """Print the measurements of the package, or with ``--budget`` the figures as house.yaml has them."""
    if sys.argv[1:] == ["--budget"]:
        for figure, value in figures(Path("opcheck").resolve()).items():
            print(f"{figure}: {value:g}")
        return
    package = Path(sys.argv[1] if len(sys.argv) > 1 else "opcheck").resolve()
    modules = read_all(package)
    files = Counter(module.room for module in modules)
    code: Counter[str] = Counter()
    for module in modules:
        code[module.room] += len(module.code)
    rows = [(room, files[room], lines) for room, lines in code.most_common()]
    total = ("total", files.total(), code.total())
    print(tabulate([*rows, total], ["room", "files", "code lines"]))
    longest = sorted((entry for module in modules for entry in functions(module)), reverse=True)
    lines = [line for module in modules for line in module.text.splitlines()]
    comments = sum(len(module.comments) for module in modules)
    print(f"\ncomments per code line {comments / code.total():.2f}")
    print(f"lines over {LONG_LINE}         {sum(len(line) > LONG_LINE for line in lines)}")
    median, ninth = (longest[len(longest) * part // 10][0] for part in (5, 1))
    print(f"function code lines    median {median}, p90 {ninth}; the longest:")
    print(tabulate(longest[:10], tablefmt="plain"))
    for figure, (value, names) in measure(package, modules).items():
        usual = ", ".join(f"{name} {count}" for name, count in names.most_common(8))
        print(f"{figure:27} {value:6g}  {usual}")


if __name__ == "__main__":
    main()
