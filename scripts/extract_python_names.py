"""Read the public names and arguments of torch's Python by release: op_lists/python_names.json.

python -m scripts.extract_python_names

Reads the sources in the macOS wheels of all releases (about 1.3 GB, which it downloads where the cache lacks them) and
writes the names that some releases have and others lack.  A name is public if its module lists it in ``__all__``, or
defines it without an underscore, or has it as a submodule; a release has it if its module binds it in any way.  An
argument is listed if a release has its function or method without it; those of functions in C++ come from
native_functions.yaml.
"""

import ast
import functools
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.data.files import read_releases
from opcheck.data.history import SCHEMA, contract
from opcheck.data.registrations import data_directory
from opcheck.data.tables import NAMES
from opcheck.data.wheels.archive import default_cache, obtain

#: Names that C++ defines stand in the stubs alone.
_FUNCTIONS, _C = "torch._C._VariableFunctions", "torch._C"
#: Left out: what is experimental, for other devices, or internal in all but its name.
_WITHOUT = (
    *("ao", "contrib", "cuda", "csrc", "distributed", "fx", "lib", "mtia", "nativert", "numa"),
    *("onnx", "package", "quantization", "testing", "version", "xpu"),
)
_NATIVE = "torchgen/packaged/ATen/native/native_functions.yaml"
_SCHEMA = re.compile(r"^- func: ([a-z]\w*)[.\w]*\((.*)\) -> ", re.MULTILINE)
_ARGUMENT = re.compile(r"(\w+)(?:=[^,()]*)?(?:, |$)")
#: torch's shape functions read these at each call, and programs do not.
_READ_ALWAYS = re.compile("Sym[A-Z]|sym_")
_LATE_IN_STUB = (
    *("chalf", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)
_WITHOUT_BELOW = ("torch.utils.benchmark", "torch.utils.tensorboard", "torch.utils.viz")


class Module(NamedTuple):
    """What the text of a module says of its names."""

    bound: frozenset[str]
    public: frozenset[str]
    #: modules of which it takes all names
    stars: tuple[str, ...]
    package: bool


class Sources:
    """The modules of one wheel."""

    def __init__(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            self._texts = {
                _dotted(name): (archive.read(name).decode("utf-8", "replace"), name)
                for name in sorted(archive.namelist())
                if name.startswith("torch/")
                and name.endswith((".py", ".pyi"))
                # A stub beside a module says less than the module.
                and (name.endswith(".py") or _dotted(name) in (_FUNCTIONS, _C))
            }
            self._native = archive.read(_NATIVE).decode()

    def names(self) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """Of each public module the names that it binds, and which of them are public."""
        results = {}
        for module in self._texts:
            if _is_public(module):
                below = {
                    name.rpartition(".")[2]
                    for name in self._texts
                    if name.rpartition(".")[0] == module and _is_public(name)
                }
                bound = self._bound(module) | below
                public = {
                    name
                    for name in self._public(module) | below
                    if name in bound and name[0] != "_" and not _READ_ALWAYS.match(name)
                }
                results[module] = (bound, frozenset(public))
        return results

    def arguments(self) -> dict[str, frozenset[str] | None]:
        """Return the arguments of public functions, classes and methods; None: any that a caller may name."""
        results: dict[str, frozenset[str] | None] = {}
        for name, written in _SCHEMA.findall(self._native):
            if name.endswith(("_copy", "_backward")):
                continue  # their variants with out= moved to what torchgen writes, and are no public names
            names = frozenset(_ARGUMENT.findall(written))
            results[f"aten.{name}"] = names | (results.get(f"aten.{name}") or frozenset())
        for module, (text, path) in self._texts.items():
            if _is_public(module) and path.endswith(".py"):
                results.update(_arguments(ast.parse(text).body, module))
        return results

    @functools.cache  # noqa: B019 - an object a wheel, of a script that ends
    def _bound(self, module: str) -> frozenset[str]:
        if module not in self._texts:
            return frozenset()
        read = self._read(module)
        stars = (self._bound(star) for star in read.stars if star != module)
        texts = read.bound.union(*stars)
        if module == "torch":
            texts |= self._read(_FUNCTIONS).bound | self._read(_C).bound | self._old_dtypes()
        return texts

    def _old_dtypes(self) -> frozenset[str]:
        """Dtypes that the stub got a release later than C++: torch's own Python names them already."""
        whole = "\n".join(text for text, _ in self._texts.values())
        return frozenset(name for name in _LATE_IN_STUB if re.search(rf"\btorch\.{name}\b", whole))

    @functools.cache  # noqa: B019 - the same
    def _public(self, module: str) -> frozenset[str]:
        if module not in self._texts:
            return frozenset()
        read = self._read(module)
        texts = read.public
        if read.package:
            texts = texts.union(*(self._public(star) for star in read.stars if star != module))
        if module == "torch":
            texts |= self._read(_FUNCTIONS).public | _dtypes(self._texts[_C][0])
        return texts

    @functools.cache  # noqa: B019 - the same
    def _read(self, module: str) -> Module:
        text, path = self._texts[module]
        return _read(text, module, package=Path(path).stem == "__init__")


def _dotted(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_public(module: str) -> bool:
    parts = module.split(".")
    return (
        not any(part.startswith("_") for part in parts)
        and (len(parts) < 2 or parts[1] not in _WITHOUT)
        and not module.startswith(_WITHOUT_BELOW)
    )


def _dtypes(stub: str) -> frozenset[str]:
    return frozenset(
        node.target.id
        for node in ast.parse(stub).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.annotation, ast.Name)
        and node.annotation.id == "dtype"
    )


def _read(text: str, module: str, *, package: bool) -> Module:
    """Collect what the statements of a module bind."""
    bound: set[str] = set()
    defined: set[str] = set()
    listed: set[str] = set()
    stars: list[str] = []
    for node in _statements(ast.parse(text).body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            names = _targets(node)
            bound |= names
            listed |= _strings(node.value) if "__all__" in names and node.value else set()
            if isinstance(node.value, ast.Call) and "_docstr" in ast.unparse(node.value.func):
                defined |= names
        elif isinstance(node, ast.Expr) and "__all__" in ast.unparse(node.value).partition("(")[0]:
            listed |= _strings(node.value)  # __all__.extend([...])
        elif isinstance(node, ast.Import):
            bound |= {(n.asname or n.name).partition(".")[0] for n in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _resolved(module, node.module or "", node.level, package=package)
            names = {n.asname or n.name for n in node.names} - {"*"}
            stars += [base] * (len(node.names) - len(names))
            bound |= names
            defined |= names if package and base.partition(".")[0] == "torch" else set()
    bound |= defined | listed
    return Module(frozenset(bound), frozenset(listed or defined), tuple(stars), package)


def _targets(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those at the top of a module, under whatever condition."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _arguments(body: list[ast.stmt], within: str) -> Iterator[tuple[str, frozenset[str] | None]]:
    for node in _statements(body):
        if isinstance(node, ast.ClassDef) and node.name[0] != "_":
            yield from _arguments(node.body, f"{within}.{node.name}")
        elif isinstance(node, ast.FunctionDef) and (node.name[0] != "_" or node.name == "__init__"):
            decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
            if decorators & {"overload", "setter"}:
                continue
            given = node.args
            names = (each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))
            public = frozenset(name for name in names if name[0] != "_" and name != "self")
            yield f"{within}.{node.name}", None if given.kwarg else public


def _strings(node: ast.expr) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def _resolved(module: str, source: str, level: int, *, package: bool) -> str:
    if not level:
        return source
    parts = module.split(".")
    parts = parts[: len(parts) - level + package]
    return ".".join([*parts, *([source] if source else [])])


def extract(wheels: Mapping[str, Path]) -> dict[str, Any]:
    """The content of the file, from the wheel of each release line, in order."""
    lines = tuple(wheels)
    sources = {line: Sources(wheel) for line, wheel in wheels.items()}
    read = {line: source.names() for line, source in sources.items()}
    modules = sorted({module for names in read.values() for module in names})
    results: dict[str, Any] = {}
    for module in modules:
        having = [line for line in lines if module in read[line]]
        public = {name for line in having for name in read[line][module][1]}
        names = {}
        for name in sorted(public):
            present = {line: "" for line in having if name in read[line][module][0]}
            # A module that is not there is said once, at its package.
            if len(present) != len(having):
                names[name] = [list(entry) for entry in contract(present, lines)]
        if names:
            results[module] = names
    arguments = _by_release({line: source.arguments() for line, source in sources.items()})
    return {"schema": SCHEMA, "releases": list(lines), "modules": results, "arguments": arguments}


def _by_release(read: dict[str, dict[str, frozenset[str] | None]]) -> dict[str, Any]:
    """Return the arguments that some releases lack of a function that they have."""
    results: dict[str, Any] = {}
    for function in sorted(set().union(*read.values())):
        having = {line: names[function] for line, names in read.items() if function in names}
        varying = {}
        for name in sorted(frozenset().union(*(names or () for names in having.values()))):
            present = {line: "" for line, names in having.items() if names is None or name in names}
            if len(present) != len(having):
                varying[name] = [list(entry) for entry in contract(present, list(read))]
        if varying:
            results[function] = varying
    return results


def _text(content: dict[str, Any]) -> str:
    """JSON with a line for each name, so that a new release shows in a diff."""
    head = f'{{"schema": {content["schema"]}, "releases": {json.dumps(content["releases"])}'
    tables = (
        f',\n"{key}": {{' + ",".join(_lines(*item) for item in content[key].items()) + "\n}"
        for key in ("modules", "arguments")
    )
    return head + "".join(tables) + "}\n"


def _lines(owner: str, names: dict[str, Any]) -> str:
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in names.items())
    return f"\n{json.dumps(owner)}: {{\n" + ",\n".join(rows) + "}"


def main() -> int:
    """Read all wheels, write the file."""
    releases, _ = read_releases(data_directory() / "releases.yaml")
    content = extract({release.line: obtain(release.torch, default_cache()) for release in releases})
    (data_directory() / NAMES.name).write_text(_text(content), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
