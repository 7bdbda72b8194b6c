"""Runs the checks that quantizers of transformers and diffusers make of a machine, with a Mac's answers.

Neither library is imported: their source is read.  Each quantizer of the installed version is found in
``quantizers/auto.py``, and its ``validate_environment`` is followed statement by statement.  A condition that the
machine does not decide is passed over.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.capture.naming import package_folder
from opcheck.common import documents
from opcheck.common.python_source import COMPARE, parse
from opcheck.common.versions import Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.packages import PACKAGES
from opcheck.worker.environments import distribution_version


@functools.cache
def _read_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; an empty one where there is no such file."""
    try:
        return parse(documents.read(path), path.name)
    except (OSError, SyntaxError):
        return ast.Module([], [])


def _read_items(module: ast.Module, name: str) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Yield the keys and the values of a module's dictionary."""
    for node in module.body:
        names = [each.id for each in getattr(node, "targets", ()) if isinstance(each, ast.Name)]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and name in names:
            yield from zip(node.value.keys, node.value.values, strict=True)


def read_keys(path: Path, name: str) -> frozenset[str]:
    """Return the texts that are the keys of a module's dictionary."""
    keys = (key.value for key, _ in _read_items(_read_tree(path), name) if isinstance(key, ast.Constant))
    return frozenset(key for key in keys if isinstance(key, str))


_MAPPING = "AUTO_QUANTIZER_MAPPING"
_METHOD = "validate_environment"
#: What a Mac with its packages answers to functions that ask for the machine.
_ANSWERS: dict[str, bool] = load_shipped(__file__, "mac_answers.yaml")
_NO_DEVICE = re.compile(r"is_torch_(cuda|xpu|npu|hpu|musa|mlu|neuroncore)_available|torch\.(cuda|xpu)\.is_available")
_PACKAGE = re.compile(r"is_(\w+)_available")
#: The comparisons that are followed: an order of versions is not.
_FOLLOWED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


#: A value that the machine does not decide.
UNDECIDED = object()


class QuantizerCheck(NamedTuple):
    """What the check of a quantizer comes to on a Mac, for weights that are quantized already."""

    method: str
    #: file and line below the package, with the version: ``transformers 5.23.0, quantizers/quantizer_eetq.py:50``
    where: str
    #: the exception with its text; empty: it raises none
    raises: str = ""
    #: the weights become dense
    dequantizes: bool = False


class _BlockEnd(NamedTuple):
    """How a block of statements ended: by ``return``, or by ``raise`` with a text."""

    line: int
    raises: str = ""


@functools.cache
def checks(library: str, torch: Version) -> Mapping[str, QuantizerCheck]:
    """Return the check of each quantizer of an installed library by its method; none if it is not installed.

    Args:
        library: transformers or diffusers.
        torch: the release of the Mac.
    """
    folder = package_folder(library) / "quantizers"
    tree = _read_tree(folder / "auto.py")
    places = {
        alias.asname or alias.name: folder / (node.module or "")
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    found = {}
    for method, name in _find_classes(tree):
        place = places.get(name, folder)
        files = (place.with_suffix(".py"), *sorted(place.glob("*.py")))
        defined = filter(None, (_check(method, file, name, library, torch) for file in files))
        if check := next(defined, None):
            found[method] = check
    return found


def check_of(library: str, method: str, torch: Version, *, bits: int = 4) -> QuantizerCheck | None:
    """Return the check of a method; None where the library has none or is not installed.

    Args:
        library: transformers or diffusers.
        method: as in quantization_config.
        torch: the release of the Mac.
        bits: of the weights, where a library has a quantizer for each number.
    """
    found = checks(library, torch)
    return found.get(method) or found.get(f"{method}_{bits}bit")


def _find_classes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the methods and the classes of their quantizers."""
    for key, value in _read_items(tree, _MAPPING):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
            yield str(key.value), value.id


def _check(method: str, file: Path, name: str, library: str, torch: Version) -> QuantizerCheck | None:
    """Return the check of a class; None where the file does not define it."""
    tree = _read_tree(file)
    classes = [c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == name]
    methods = (m for kind in classes for m in kind.body if isinstance(m, ast.FunctionDef))
    body = [each for each in methods if each.name == _METHOD]
    where = f"{library} {distribution_version(library)}, quantizers/{file.name}"
    if not classes:
        return None
    if not body:
        return QuantizerCheck(method, f"{where}: no {_METHOD}")
    machine = _MacAnswers(torch)
    end = machine.run(body[0].body)
    line = end.line if end else body[0].lineno
    return QuantizerCheck(method, f"{where}:{line}", end.raises if end else "", machine.values.get(_DENSE) is True)


_DENSE = "self.quantization_config.dequantize"


class _MacAnswers:
    """Follows statements with a Mac's answers."""

    def __init__(self, torch: Version) -> None:
        self._torch = torch
        self.values: dict[str, Any] = {"self.pre_quantized": True, _DENSE: False, "device_map": None}

    def run(self, body: list[ast.stmt]) -> _BlockEnd | None:
        """Follow statements; return how they end, or None where the next statement follows."""
        for statement in body:
            end = self._step(statement)
            if end is not None:
                return end
        return None

    def _step(self, node: ast.stmt) -> _BlockEnd | None:
        if isinstance(node, ast.If):
            test = self._value(node.test)
            return None if test is UNDECIDED else self.run(node.body if test else node.orelse)
        if isinstance(node, ast.Raise):
            return _BlockEnd(node.lineno, self._text(node.exc))
        if isinstance(node, ast.Return):
            return _BlockEnd(node.lineno)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self.values[ast.unparse(node.targets[0])] = self._value(node.value)
        return None

    def _text(self, node: ast.expr | None) -> str:
        if not isinstance(node, ast.Call):
            return ast.unparse(node) if node else "an exception"
        words = [self._value(each) for each in node.args[:1]]
        text = words[0] if words and isinstance(words[0], str) else ""
        return f"{ast.unparse(node.func)}: {text}"

    def _value(self, node: ast.expr) -> Any:  # noqa: PLR0911 - a kind of node each
        name = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        if name in self.values:
            return self.values[name]
        if isinstance(node, ast.Attribute) and node.attr == "type":
            return self._value(node.value)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self._piece, node.values))
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items = [self._value(each) for each in node.elts]
            return UNDECIDED if UNDECIDED in items else items
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self._value(node.operand)
            return UNDECIDED if value is UNDECIDED else not value
        if isinstance(node, ast.BoolOp):
            return self._bool(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._value(node.left), self._value(node.comparators[0])
            if not isinstance(node.ops[0], _FOLLOWED) or UNDECIDED in (left, right):
                return UNDECIDED
            return COMPARE[type(node.ops[0])](left, right)
        return self._call(node) if isinstance(node, ast.Call) else UNDECIDED

    def _piece(self, node: ast.expr) -> str:
        """Return a piece of a formatted text; a value that the machine does not decide as its name."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        assert isinstance(node, ast.FormattedValue)
        value = self._value(node.value)
        return f"{{{ast.unparse(node.value)}}}" if value is UNDECIDED else str(value)

    def _bool(self, node: ast.BoolOp) -> Any:
        values = [self._value(each) for each in node.values]
        decisive = isinstance(node.op, ast.Or)
        last = UNDECIDED if UNDECIDED in values else values[-1]
        return next((each for each in values if each is not UNDECIDED and bool(each) is decisive), last)

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        if name in _ANSWERS:
            return _ANSWERS[name]
        if _NO_DEVICE.fullmatch(name):
            return False
        if name == "get_current_accelerator":
            return "mps"  # its type, which alone is read
        if name == "is_torch_greater_or_equal" and node.args:
            return self._torch >= Version.parse(str(self._value(node.args[0])))
        if name == "isinstance":
            value = self._value(node.args[0])
            return UNDECIDED if value is UNDECIDED else isinstance(value, dict)
        if name == "kwargs.get":
            return self.values.get(str(self._value(node.args[0])), UNDECIDED)
        package = _PACKAGE.fullmatch(name)
        return is_installable(package[1]) if package else UNDECIDED


@functools.cache
def is_installable(name: str) -> bool:
    """Return whether a package can be installed on a Mac, by the list of those that cannot."""
    by_name: Mapping[str, Any] = PACKAGES.load().by_name
    plain = name.replace("_", "-")
    listed = by_name.get(PACKAGES.load().by_import.get(name, plain)) or by_name.get(plain)
    return listed is None or bool(listed.since or listed.sources)
