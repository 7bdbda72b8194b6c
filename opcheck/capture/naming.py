"""Completes the short names of models that people write: ``mymodel.py``, ``resnet50``, ``model.pt``, a folder.

Nothing here imports torch, a library of models or the user's code: files are parsed, so that a name that is not
complete is answered at once.
"""

import ast
import difflib
import functools
import pickletools
import re
import zipfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.capture.repository import MARKERS, no_configuration, recipes
from opcheck.capture.word_lists import TABLES
from opcheck.common import documents
from opcheck.common.errors import ModelLoadError
from opcheck.common.files import describe_missing, is_file
from opcheck.common.python_source import parse
from opcheck.common.text import plural
from opcheck.common.yaml_text import load_shipped

FORMS: str = TABLES["forms"]

#: The files of the libraries that name their models, and how.
LIBRARIES: dict[str, tuple[str, re.Pattern[str]]] = {
    name: (files, re.compile(pattern, re.MULTILINE)) for name, (files, pattern) in TABLES["libraries"].items()
}

_BARE = re.compile(r"[A-Za-z_][\w-]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
#: Bases of modules that a file imports from elsewhere.
_BASES = re.compile(r"Module|Sequential|LightningModule|ModelMixin|\w*PreTrainedModel|GraphModule")
#: How many models an error lists.
_MOST_NAMED = 6


def full_name(spec: str) -> str:
    """Return the whole name of the model that a short name means; other names as they are.

    Raises:
        ModelLoadError: it means none, or several.
    """
    try:
        return _full_name(spec)
    except ModelLoadError as error:
        error.context = error.context or working_place(spec)
        raise


def _full_name(spec: str) -> str:
    path, file = Path(spec), Path(spec.removesuffix(":"))
    if file.suffix == ".py" and is_file(file):
        content = read_modules(file)
        if content.error is not None:
            message = f"{spec} is not a file of Python: {content.error}"
            raise ModelLoadError(message, hint="correct the file, or name another: file.py:attribute")
        # A script that defines no model at its top level is run until it calls one (user_code.py).
        return spec if content.is_script and not content.modules else _only_model({file: content}, spec)
    if ":" in spec or spec.endswith((".ipynb", ".pt2", ".py")):
        return spec
    if is_file(path) or spec.lower().endswith(_WEIGHTS):
        raise no_model(spec)
    if not path.is_dir() and (_BARE.fullmatch(spec) or _DOTTED.fullmatch(spec)):
        raise _which_library(spec)
    if not path.is_dir() or any((path / name).is_file() for name in MARKERS):
        return spec
    if files := sorted(path.glob("*.py")):
        return _only_model({each: read_modules(each) for each in files}, spec)
    raise no_configuration(spec, sorted(each.name for each in path.iterdir()))


class ModuleName(NamedTuple):
    """A name of a file that is a module, a class of modules, or a function that makes a module."""

    name: str
    #: it needs no argument
    complete: bool
    #: another of the file's modules is made of it
    used: bool


class PythonFile(NamedTuple):
    """What a file of Python does, as far as it shows without running it."""

    #: in the file's order
    modules: tuple[ModuleName, ...] = ()
    #: it does more than define names
    is_script: bool = False
    #: why it cannot be parsed
    error: SyntaxError | None = None


def read_modules(path: Path) -> PythonFile:
    """Return the modules that a file defines; none if it cannot be read or parsed."""
    try:
        statements = parse(documents.read(path), path.name).body
    except OSError:
        return PythonFile()
    except SyntaxError as error:
        return PythonFile(error=error)
    result: dict[str, ast.stmt] = {}
    for node in statements:
        name = _defines_model(node, result)
        if name and not name.startswith("_"):
            result[name] = node
    used = {
        word.id
        for name, node in result.items()
        for word in ast.walk(node)
        if isinstance(word, ast.Name) and word.id != name
    }
    modules = tuple(ModuleName(name, _is_complete(node), name in used) for name, node in result.items())
    is_script = any(
        isinstance(node, (ast.For, ast.If, ast.While, ast.With))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in statements
    )
    return PythonFile(modules, is_script)


def _defines_model(node: ast.stmt, models: Iterable[str]) -> str:
    """Return the name that a statement gives to a module, its class or a function that makes it; or nothing."""
    if isinstance(node, ast.ClassDef):
        return node.name if any(_is_class(base, models) for base in node.bases) else ""
    if isinstance(node, ast.FunctionDef):
        returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
        modules = [each for each in ast.walk(node) if isinstance(each, ast.Assign) and _is_made(each.value, models)]
        local = {target.id for each in modules for target in each.targets if isinstance(target, ast.Name)}
        makes = any(
            _is_made(value, models) or (isinstance(value, ast.Name) and value.id in local) for value in returned
        )
        declared = node.returns is not None and _is_class(node.returns, models)
        return node.name if makes or declared else ""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return target.id if isinstance(target, ast.Name) and _is_made(node.value, models) else ""
    return ""


def _is_class(node: ast.expr, models: Iterable[str]) -> bool:
    """Return whether an expression names a class of modules: nn.Module, or a class of this file."""
    last = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return last in models or bool(_BASES.fullmatch(last))


def _is_made(node: ast.expr | None, models: Iterable[str]) -> bool:
    """Return whether an expression makes a module: ``Net()``, ``nn.Sequential(...)``, ``Net().eval()``."""
    if not isinstance(node, ast.Call):
        return False
    # Methods of the result, .eval() or .to(...), may be thousands.
    while isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        node = node.func.value
    return _is_class(node.func, models)


def _is_complete(node: ast.stmt) -> bool:
    """Return whether a class or a function can be called without an argument."""
    if isinstance(node, ast.ClassDef):
        own = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        return all(_needs(each) <= 1 for each in own)  # self
    return not isinstance(node, ast.FunctionDef) or _needs(node) == 0


def _needs(function: ast.FunctionDef) -> int:
    """Return how many arguments have no default."""
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional + sum(default is None for default in arguments.kw_defaults)


def _only_model(files: Mapping[Path, PythonFile], spec: str) -> str:
    """Return the name of the one model in these files.

    Raises:
        ModelLoadError: there is none, or several.
    """
    modules = [(path, module) for path, content in files.items() for module in content.modules]
    tops = [f"{path}:{module.name}" for path, module in modules if not module.used]
    if len(tops) == 1:
        return tops[0]
    names = tops or [f"{path}:{module.name}" for path, module in modules]
    if not names:
        raise ModelLoadError(
            f"{spec} defines no model that can be seen without running it",
            hint="write file.py:attribute, a class of torch.nn.Module or a function that returns one",
        )
    shown = names[:_MOST_NAMED]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    raise ModelLoadError(
        f"{spec} defines {plural(len(names), 'model')}: which one?",
        hint=f"write {', '.join(shown[:-1])} or {shown[-1]}{more}",
    )


def library_models(library: str) -> tuple[str, ...]:
    """Return the names of an installed library's models, read in its files; none if it is not installed."""
    files, pattern = LIBRARIES[library]
    texts: set[str] = set()
    for path in package_folder(library).glob(files):
        texts.update(pattern.findall(documents.read_text(path)))
    return tuple(sorted(texts))


@functools.cache
def package_folder(package: str) -> Path:
    """Return the folder of a package without importing the package."""
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else Path("/nonexistent")


#: A shorter name begins too many names of recipes to mean one of them.
_FEWEST_LETTERS = 3


def _which_library(spec: str) -> ModelLoadError:
    """Return the error for a name without its library: the libraries that have it, or the nearest names."""
    # Without regard to case, - and _.
    word = _plain(spec.rpartition(".")[2])
    every = {f"{library}:{name}": name for library in LIBRARIES for name in library_models(library)}
    named = [whole for whole, name in every.items() if _plain(name) == word]
    if named:
        return ModelLoadError(
            f"{spec} is in {plural(len(named), 'library')}: name it with its library",
            hint=f"opcheck audit {' or opcheck audit '.join(named)}",
        )
    names = recipes() if len(spec) >= _FEWEST_LETTERS else ()
    shipped = [name for name in names if _plain(name.rpartition("/")[2]).startswith(_plain(spec))]
    if shipped:
        return ModelLoadError(
            f"{spec} is no file, folder or model of an installed library",
            hint=f"opcheck audit recipe:{shipped[0]}, which ships with opcheck, or hf:{shipped[0]}",
        )
    module, _, attribute = spec.rpartition(".")
    if module and attribute[:1].isupper():
        return ModelLoadError(f"not a model: {spec!r}", hint=f"{module}:{attribute}?")
    whole_names = {name: whole for whole, name in every.items()}
    near = difflib.get_close_matches(spec, whole_names, n=3, cutoff=0.75)
    hint = f"did you mean {' or '.join(whole_names[name] for name in near)}?" if near else FORMS
    return ModelLoadError(f"not a model: {spec!r}, no file, folder or model of an installed library", hint=hint)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()


#: What the weights in a file alone lack.
_NEEDS_CODE: str = TABLES["needs_code"]


class FileKind(msgspec.Struct, frozen=True):
    """A row of file_kinds.yaml."""

    kind: str
    member: frozenset[str] = frozenset()
    start: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    hint: str = _NEEDS_CODE
    weights: bool = False


_FILE_KINDS = msgspec.convert(load_shipped(Path(__file__).with_name("file_kinds.yaml")), tuple[FileKind, ...])
_PICKLED: str = TABLES["pickled"]
#: Files of models by their suffixes, where there is no such file to look into.
_WEIGHTS = (".bin", ".ckpt", ".gguf", ".h5", ".onnx", ".pt", ".pth", ".safetensors")


def no_model(spec: str) -> ModelLoadError:
    """Return the error for a name of an unknown form; a file is named by its content, and none of it runs."""
    path = Path(spec)
    kind = kind_of(path) if is_file(path) else ""
    if kind:
        row = next((row for row in _FILE_KINDS if row.kind == kind), FileKind(kind, weights=True))
        hint = _PICKLED.format(kind.removeprefix(PICKLED).strip()) if kind.startswith(PICKLED) else row.hint
        if row.weights:
            hint = f"opcheck weights {spec} shows what the file becomes on a Mac; {hint}"
        return ModelLoadError(f"{spec} is {kind}, not a model that can be audited", hint=hint)
    if spec.lower().endswith(_WEIGHTS) and not is_file(path):
        hint = "a file of weights is no program in any case: write file.py:attribute"
        return ModelLoadError(describe_missing(spec), hint=hint)
    return ModelLoadError(f"not a model: {spec!r}", hint=FORMS)


def working_place(spec: str) -> str:
    """Return the context of an error about a model's name."""
    return f"model {spec}, working directory {Path.cwd()}"


# -- kinds of files --------------------------------------------------------------------------------------------------


def is_inner(members: list[zipfile.ZipInfo]) -> bool:
    """Return whether it is the directory of an archive inside of the file, as it is found at the end of half a file."""
    return bool(members) and min(info.header_offset for info in members) > 0


def kind_of(path: Path) -> str:
    """Return what a file is by its content, as a noun; empty: nothing that is known here."""
    with documents.open_file(path) as file:
        start = file.read(16)
        if start.startswith(b"PK"):
            try:
                archive = documents.open_zip(file)
            except (OSError, ValueError, zipfile.BadZipFile):
                return ""
            if is_inner(archive.infolist()):
                return ""
            names = archive.namelist()
            members = {*names, *(name.partition("/")[2] for name in names)}
            kind = next((row.kind for row in _FILE_KINDS if row.member & members), "")
            return _pickled_class(archive) or kind
    if start[8:10] == b'{"':
        return "a safetensors file"
    text, suffix = start.decode("latin-1"), path.suffix.lower()
    rows = (row for row in _FILE_KINDS if text.startswith(row.start) or suffix in row.suffix)
    return next((row.kind for row in rows), "")


def _pickled_class(archive: zipfile.ZipFile) -> str:
    """Return the class of a pickled object as a kind; empty for a dictionary, as of weights, and for TorchScript.

    The first opcodes of a pickle name the class of its outermost object; nothing of it is run.
    """
    names = archive.namelist()
    name = next((each for each in names if each.endswith("/data.pkl")), "")
    if not name or any(each.endswith("/constants.pkl") for each in names):
        return ""
    try:
        with archive.open(name) as member:
            head = member.read(_HEAD)
        for opcode, argument, _ in pickletools.genops(head):
            if opcode.name == "GLOBAL":
                module, _, class_name = str(argument).partition(" ")
                return "" if module in _CONTAINERS else f"{PICKLED} {module}:{class_name}"
            if opcode.name not in {"PROTO", "FRAME"}:
                return ""
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
        pass
    return ""


#: Bytes of a pickle that are read.
_HEAD = 1 << 12
_CONTAINERS = {"builtins", "collections", "__builtin__"}
#: The kind of a file with a whole module, before the name of its class.
PICKLED = "a pickled object of"
