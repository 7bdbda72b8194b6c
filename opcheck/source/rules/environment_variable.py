"""An environment variable without the intended effect."""

import ast
from collections.abc import Iterator

from opcheck.data.environment import ENVIRONMENT, NAME, MpsVariable, number
from opcheck.source.edits import Fix, replace
from opcheck.source.rule import Hit, Scanned, argument, hit, rule
from opcheck.source.words import UNKNOWN, imported_modules, quote

#: Importing these imports torch.
_TORCH = {"torch", "torchvision", "torchaudio", "timm", "accelerate", "diffusers", "lightning"}
_SETTERS = {"os.environ.setdefault", "os.putenv"}


def _names() -> tuple[str, ...]:
    """Two wrong letters leave at least a part of three of a name whole."""
    parts = {
        name[number * len(name) // 3 : (number + 1) * len(name) // 3]
        for name in ENVIRONMENT.load().variables
        for number in range(3)
    }
    texts = "|".join((NAME.pattern, *sorted(parts)))
    return tuple(f"{setter} (?:{texts})" for setter in ("environ", "putenv"))


@rule("OC216", words=_names)
def find_variables(node: ast.Assign | ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Variables with MPS in their names that the program sets for itself."""
    for name_node, value in _set(node, scanned):
        name = scanned.mac.constant(name_node)
        if not isinstance(name, str):
            continue
        meant = _correct_name(name)
        if meant:
            yield hit("no such variable", node, fix=_rename(name_node, meant, scanned), name=quote(name), meant=meant)
            continue
        if not NAME.fullmatch(name):
            continue
        explained = ENVIRONMENT.load().explain(name, scanned.target.torch)
        if explained.status != "read":
            yield Hit(
                node=node,
                message=explained.text.partition(". ")[0].rstrip("."),
                hint=explained.text.partition(". ")[2],
                severity="error" if explained.status == "invented" else None,
            )
        elif explained.variable is not None:
            yield from _find_misuse(node, explained.variable, value, scanned)


def _correct_name(name: str) -> str:
    """Return the variable of PyTorch that a name misspells by up to two letters; empty if it is none."""
    explained = ENVIRONMENT.load()
    if name in explained.variables or name in explained.invented or not 10 < len(name) < 60:
        return ""
    return next((each for each in explained.variables if 0 < _distance(name, each) <= 2), "")


def _distance(first: str, second: str) -> int:
    """The number of letters to insert, delete or replace (Levenshtein); 3 means more."""
    if abs(len(first) - len(second)) > 2:
        return 3
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != other))
    return min(row[-1], 3)


def _rename(node: ast.expr, meant: str, scanned: Scanned) -> Fix | None:
    text = scanned.text(node) if isinstance(node, ast.Constant) else ""
    return Fix((replace(node, f"{text[0]}{meant}{text[0]}"),)) if text[:1] in {"'", '"'} else None


def _set(node: ast.Assign | ast.Call, scanned: Scanned) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The names and values that a statement or a call puts into the environment."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and scanned.dotted_name(target.value) == "os.environ":
                yield target.slice, node.value
    else:
        name = scanned.dotted_name(node.func)
        if name in _SETTERS and len(node.args) == 2:
            yield node.args[0], node.args[1]
        elif name == "os.environ.update":
            mapping = argument(node, 0)
            if isinstance(mapping, ast.Dict):
                pairs = zip(mapping.keys, mapping.values, strict=True)
                yield from ((key, value) for key, value in pairs if key is not None)
            yield from ((ast.Constant(word.arg), word.value) for word in node.keywords if word.arg)


def _find_misuse(node: ast.AST, variable: MpsVariable, value: ast.expr, scanned: Scanned) -> Iterator[Hit]:
    constant = scanned.mac.constant(value)
    if constant is not UNKNOWN and not isinstance(constant, str):
        yield hit("no text", node, name=variable.name, value=quote(constant))
    elif isinstance(constant, str) and number(constant) is None:
        yield hit("no number", node, name=variable.name, value=quote(constant), takes=variable.values)
    first = _torch_import(node, scanned)
    if first is not None and "imported" in variable.read:
        yield hit("set too late", node, name=variable.name, line=first.lineno)


def _torch_import(node: ast.AST, scanned: Scanned) -> ast.stmt | None:
    """The statement at the file's top level, before the node, that imports torch."""
    first = scanned.once(("imports torch",), _first_import, scanned.program.tree)
    return first if first and first.lineno < getattr(node, "lineno", 0) else None


def _first_import(tree: ast.Module) -> ast.stmt | None:
    tops = ({name.partition(".")[0] for name in imported_modules(statement)} for statement in tree.body)
    return next((statement for statement, names in zip(tree.body, tops, strict=True) if names & _TORCH), None)
