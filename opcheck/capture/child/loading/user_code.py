"""Models of the user's own: ``package.module:attribute``, ``file.py:attribute`` and ``notebook.ipynb:attribute``."""

import ast
import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from opcheck.capture.child.loading import fixed_programs
from opcheck.common import documents, notebooks
from opcheck.common.errors import ModelLoadError
from opcheck.common.files import describe_missing, is_file
from opcheck.common.python_source import parse
from opcheck.common.replacing import replace_attributes
from opcheck.common.text import error_text

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def load(spec: str, config: dict[str, Any]) -> tuple[Callable[..., Any], Arguments | None]:
    """Return the model that the attribute is or makes, and the inputs where it makes them, too.

    Raises:
        ModelLoadError: no such module, file or attribute, or the attribute is no model.
        Exception: whatever the user's code raises.
    """
    where, _, path = spec.rpartition(":")
    is_file_name = where.endswith((".py", notebooks.SUFFIX))
    if is_file_name and not path:
        return _only_model(_existing(Path(where)), spec)
    module = _from_file(Path(where), spec) if is_file_name else _from_name(where)
    return _make_model(_attribute(module, path, spec), spec, config)


def _existing(file: Path) -> Path:
    """Return the whole path of a file, whose folder is then searched for its imports.

    Raises:
        ModelLoadError: there is no such file.
    """
    if not is_file(file):
        names = [path.name for path in file.parent.glob(f"*{file.suffix}")]
        near = difflib.get_close_matches(file.name, {*names} - {file.name}, cutoff=0.75)  # all end in .py
        raise ModelLoadError(describe_missing(file), hint=_suggest(near) or "give the path from the working directory")
    file = file.resolve()
    _first_on_path(str(file.parent))
    # Last, so that it takes the place of nothing: what the file imports may be named from there, too.
    sys.path.append(str(Path.cwd()))
    return file


def _from_file(file: Path, spec: str) -> ModuleType:
    """Run the file as ``python file.py`` does, but for ``__name__``."""
    file = _existing(file)
    # The user may call a file like a module that is loaded already: torch.py, test.py.
    name = file.stem if file.stem not in sys.modules else f"opcheck_user_{file.stem}"
    kind = _NotebookLoader if file.suffix == notebooks.SUFFIX else SourceFileLoader
    loader = kind(name, str(file))
    module_spec = ModuleSpec(name, loader, origin=str(file))
    module_spec.has_location = True
    module = importlib.util.module_from_spec(module_spec)
    # dataclasses and pickle look modules up while they run.
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError) and "relative import" in error_text(error):
            raise ModelLoadError(
                f"importing {file.name} fails: {error_text(error)}",
                context=f"model {spec}: a file has no package, as in python {file.name}",
                hint="name it as package.module:attribute from the folder above the package",
            ) from error
        raise
    return module


class _NotebookLoader(SourceFileLoader):
    """Runs the code cells of a notebook as a module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run them."""
        notebooks.run(Path(self.path), module.__dict__)


def _only_model(file: Path, spec: str) -> tuple[Callable[..., Any], Arguments | None]:
    """Return the module that a script calls first, with its inputs; else the one module that it builds.

    Raises:
        ModelLoadError: it calls none, and builds several or none.
        Exception: whatever the script raises before.
    """
    called, namespace = _run_to_first_call(file)
    if called is not None:
        return called.module, called.inputs
    built = {name: value for name, value in namespace.items() if isinstance(value, torch.nn.Module)}
    parts = {id(part) for value in built.values() for part in value.modules() if part is not value}
    whole = {name: value for name, value in built.items() if id(value) not in parts}
    if len({id(value) for value in whole.values()}) == 1:
        return next(iter(whole.values())), None
    if whole:
        offered = [f"{file.name}:{name} ({type(each).__name__})" for name, each in whole.items()]
        raise ModelLoadError(
            f"{file.name} builds {len(whole)} modules",
            context=f"model {spec.rstrip(':')}",
            hint=f"name one: {', '.join(offered[:8])}",
        )
    own = [
        name for name, value in namespace.items() if getattr(value, "__module__", "") == "__main__" and callable(value)
    ]
    raise ModelLoadError(
        f"{spec!r} names no attribute, and the file builds no module",
        context=f"model {spec}",
        hint=_suggest(own, "it defines") or "name a function that returns one",
    )


class _Called(BaseException):
    """Ends a script at the first call of a module; no ``except Exception`` of the script's stops it."""

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.module, self.inputs = module, (args, kwargs)


def _run_to_first_call(file: Path) -> tuple[_Called | None, dict[str, Any]]:
    """Run a file as a script until it calls a module; return the call, if any, and the script's names."""

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        raise _Called(module, args, kwargs)

    main = ModuleType("__main__")
    vars(main).update(__file__=str(file), __builtins__=__builtins__)
    before, arguments = sys.modules.get("__main__"), sys.argv
    sys.modules["__main__"], sys.argv = main, [str(file)]
    try:
        with replace_attributes([(torch.nn.Module, "__call__", call)]):
            if file.suffix == notebooks.SUFFIX:
                notebooks.run(file, vars(main))
            else:
                code = compile(documents.read(file), str(file), "exec", dont_inherit=True)
                exec(code, vars(main))  # noqa: S102 - the user named it to be run
    except _Called as called:
        return called.with_traceback(None), vars(main)
    finally:
        sys.argv = arguments
        if before is not None:
            sys.modules["__main__"] = before
    return None, vars(main)


def _from_name(name: str) -> ModuleType:
    """Import the module as ``python -m`` would find it: the working directory comes first, then its ``src``."""
    package = name.partition(".")[0]
    source = Path("src", package)
    if package not in sys.modules:  # for torch.nn: libraries that it imports later are the installed ones
        if source.is_dir() or source.with_suffix(".py").is_file():
            _first_on_path(str(Path("src").resolve()))
        _first_on_path(str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that it imports may be what is missing: that is stated with the user's line.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ModelLoadError(
            f"there is no module {error.name}",
            hint="run from the folder that it is imported from, or write file.py:attribute",
        ) from error


def _first_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.invalidate_caches()


def _attribute(module: ModuleType, path: str, spec: str) -> Any:
    where = spec.removesuffix(path).rstrip(":")
    value: Any = module
    for name in path.split("."):
        if not hasattr(value, name):
            raise ModelLoadError(
                f"{where} has no attribute {path!r}" if path else f"{spec!r} names no attribute",
                context=f"model {spec}",
                hint=_suggest(difflib.get_close_matches(name, dir(value)))
                or _suggest(_candidates(value), "it defines"),
            )
        value = getattr(value, name)
    return value


def _make_model(value: Any, spec: str, config: dict[str, Any]) -> tuple[Callable[..., Any], Arguments | None]:
    if isinstance(value, (torch.nn.Module, torch.export.ExportedProgram)) or not callable(value):
        result = value
        if config:
            raise ModelLoadError(
                f"{spec} is a {type(value).__name__} already: it takes no configuration",
                context=f"configuration {', '.join(config)}",
                hint="name its class, or a function that returns it",
            )
    elif _is_the_model(value, config):
        return value, None
    else:
        result = value(**config)
    inputs = None
    if isinstance(result, tuple) and len(result) == 2:
        result, inputs = result[0], _arguments(result[1])
    if isinstance(result, torch.export.ExportedProgram):
        return fixed_programs.as_module(result), inputs or fixed_programs.arguments(result)
    if not callable(result):
        raise ModelLoadError(
            f"{spec} is no model: it {'returns' if callable(value) else 'is'} {type(result).__name__}",
            context=f"model {spec}",
            hint="name a torch.nn.Module, its class, or a function that returns a module",
        )
    return result, inputs


def _is_the_model(value: Any, config: Mapping[str, Any]) -> bool:
    """Return whether a function is the model: it takes arguments that nothing provides, so they are tensors."""
    if isinstance(value, type) or config:
        return False
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:
        return True  # a builtin: torch.linalg.eig
    positional = (each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    return any(each.default is each.empty for each in positional)


def _arguments(inputs: Any) -> Arguments:
    """Return what accompanies a module: one tensor, a tuple of arguments, names, or both."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        if len(inputs) == 2 and isinstance(inputs[0], tuple) and isinstance(inputs[1], dict):
            return inputs[0], inputs[1]
        return tuple(inputs), {}
    return (inputs,), {}


def _candidates(value: Any) -> list[str]:
    """Return the names that the file defines itself: what it imports is not meant."""
    file = getattr(value, "__file__", None)
    if file is None or not file.endswith(".py"):
        return [name for name in dir(value) if not name.startswith("_")]
    texts: list[str] = []
    for node in parse(documents.read(file)).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            texts.append(node.name)
        elif isinstance(node, ast.Assign):
            texts += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return texts


def _suggest(names: Iterable[str], say: str = "did you mean") -> str:
    listed = ", ".join(list(names)[:8])
    return f"{say} {listed}" if listed else ""
