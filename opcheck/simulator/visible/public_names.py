"""Hide names of torch's Python modules that the target lacks from the program and its libraries.

torch's own Python is that of the installed release and keeps all of its names: it would break without them
(``torch.manual_seed`` calls ``torch.mps.manual_seed``, which 1.13 has not).  So each module that has names which are
not in every release gets a class with a property for each of them, which decides by its reader.  The dictionary of the
module stays: its own functions find their globals there.  Every such look-up of the program is a question
(simulator/target_reads.py): a target with another answer needs a run of its own.

Methods of classes are those of the installed release; public_arguments.py refuses arguments.
"""

import builtins
import contextlib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own abbreviation

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.data.tables import NAMES
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.target_reads import READS
from opcheck.simulator.visible import torch_version
from opcheck.simulator.visible.requirements import DESCRIPTIONS, INSTALLED, Caller, ask_for, caller, version_of

#: the modules that have torch's version
_VERSIONS: dict[str, type[torch_version.SeenText]] = {
    "torch": torch_version.SeenTorchVersion,
    "torch.torch_version": torch_version.SeenTorchVersion,
    "torch.version": torch_version.SeenText,
}


def has_name(target: Target, module: str, name: str) -> bool:
    """Return whether the target's module has a name that some releases lack."""
    line = str(target.torch)
    if module == "torch" and name in _private_functions():
        return name in _private_operators(line)
    return NAMES.load().has(line, module, name)


DESCRIPTIONS[has_name.__name__] = "{}.{}".format


@functools.cache
def _varying(module: str) -> frozenset[str]:
    """Return the names of a module that some releases lack."""
    names = frozenset(NAMES.load().modules.get(module, ()))
    return names | _private_functions() if module == "torch" else names


@functools.cache
def _private_functions() -> frozenset[str]:
    """Return functions such as ``torch._grouped_mm``, which torch makes of operators that some releases lack.

    The lists of Python names have only public names.
    """
    operators = [_private_operators(release.line) for release in load().releases]
    return (frozenset.union(*operators) - frozenset.intersection(*operators)) & vars(torch).keys()


@functools.cache
def _private_operators(line: str) -> frozenset[str]:
    """Return the names of a release's operators of ATen that begin with ``_``, without their overloads."""
    names = (name.removeprefix("aten::") for name in load().operators(line) if name.startswith("aten::_"))
    return frozenset(name.partition(".")[0] for name in names)


def _lacks(who: Caller, module: str, name: str) -> bool:
    """Return whether the module of the release that the code sees is known to lack the name."""
    return _sees_a_release(who) and name in _varying(module) and not ask_for(who, has_name, module, name)


def _sees_a_release(who: Caller) -> bool:
    return who.kind != "own" and READS.is_target_shown()


def _make_property(module_name: str, name: str) -> property:
    """Return a property that reads the module's dictionary if the target has the name or torch itself reads it."""

    def get(module: ModuleType) -> Any:
        there = vars(module)
        who = caller()
        if _sees_a_release(who):
            if not ask_for(who, has_name, module_name, name):
                return _no_attribute(module, name)
            if name not in there:
                dotted = f"{module_name}.{name}"
                READS.note(dotted, f"the installed torch has no {dotted}, and the program found none")
        return there[name] if name in there else _no_attribute(module, name)

    return property(
        get, lambda module, value: vars(module).update({name: value}), lambda module: vars(module).pop(name)
    )


def _no_attribute(module: ModuleType, name: str) -> Any:
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


def _all(module: ModuleType) -> list[str]:
    """Return the names that ``import *`` takes; without ``__all__``, all names without an underscore."""
    there = vars(module)
    who = caller()
    if "__all__" not in there and not _sees_a_release(who):
        _no_attribute(module, "__all__")
    list_names = there.get("__all__") or [name for name in there if not name.startswith("_")]
    return [name for name in list_names if not _lacks(who, module.__name__, name)]


def _class_for(module: ModuleType, names: Iterable[str]) -> type[ModuleType]:
    """Return a class for the module, with a property for each name; other look-ups reach the dictionary."""

    def list_names(module: ModuleType) -> list[str]:
        who = caller()
        return [name for name in ModuleType.__dir__(module) if not _lacks(who, module.__name__, name)]

    properties = {name: _make_property(module.__name__, name) for name in names}
    if module.__name__ in _VERSIONS:
        properties["__version__"] = torch_version.torch_version_property(_VERSIONS[module.__name__])
    return type("module", (ModuleType,), {**properties, "__all__": property(_all), "__dir__": list_names})


class _Names:
    """Replaces the classes of all imported modules, and the functions in them, each once, until ``undo`` ends."""

    def __init__(self, undo: contextlib.ExitStack) -> None:
        self._undo = undo
        self._seen = 0
        #: the functions that are replaced
        self._checked: set[str] = set()

    def take(self) -> None:
        """Give a deciding class to the modules that were imported since the last call."""
        if len(sys.modules) == self._seen:
            return
        self._seen = len(sys.modules)
        self._take_functions()
        for name in NAMES.load().modules.keys() | _VERSIONS.keys():
            module = sys.modules.get(name)
            # Modules with a class of their own (torch.compiler.config) decide about attributes themselves.
            if type(module) is ModuleType:
                self._undo.callback(setattr, module, "__class__", ModuleType)
                module.__class__ = _class_for(module, _varying(name))

    def _take_functions(self) -> None:
        functions: dict[FunctionType, Callable[..., Any]] = {}
        changes: list[tuple[Any, str, Any]] = []
        for key in NAMES.load().arguments.keys() - self._checked:
            owner, name = _owner(key)
            original = vars(owner).get(name) if owner else None
            if isinstance(original, FunctionType):
                self._checked.add(key)
                functions[original] = _add_check(key, original)
                if isinstance(owner, type):
                    changes.append((owner, name, functions[original]))
        names = {function.__name__ for function in functions}
        for path, module in list(sys.modules.items()):
            if names and path.partition(".")[0] == "torch" and isinstance(module, ModuleType):
                there = vars(module)
                changes += [
                    (module, name, functions[there[name]])
                    for name in names & there.keys()
                    if isinstance(there[name], FunctionType) and there[name] in functions
                ]
        self._undo.enter_context(replace_attributes(changes))


def _refuse(who: Caller, name: str, fromlist: Iterable[str] = ()) -> None:
    """Raise what an import raises if the release that the code sees lacks it.

    Raises:
        ModuleNotFoundError: the target has no such module.
        ImportError: its module has no such name.
    """
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        if _lacks(who, ".".join(parts[: end - 1]), parts[end - 1]):
            missing = ".".join(parts[:end])
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
    for attribute in fromlist:
        if _lacks(who, name, attribute):
            file = getattr(sys.modules.get(name), "__file__", None)
            raise ImportError(f"cannot import name {attribute!r} from {name!r} ({file})", name=name, path=file)


def _again_as_installed(perform: Callable[[], Any]) -> Any:
    """Import; if that fails after a library read the target's version, import with the installed version."""
    if not READS.is_target_shown() or READS.now(version_of) == INSTALLED:
        return perform()
    loaded, read = {*sys.modules}, torch_version.readers()
    try:
        return perform()
    except Exception:
        if not (suspects := torch_version.readers() - read - READS.outdated):
            raise
        READS.outdated.update(suspects)
        for name in {*sys.modules} - loaded:
            if name.partition(".")[0] in suspects:
                del sys.modules[name]
        try:
            return perform()
        except Exception:  # noqa: BLE001 - of any library: its first error is raised
            READS.outdated.difference_update(suspects)
        raise


def _is_torchs(name: object) -> bool:
    return isinstance(name, str) and (name == "torch" or name.startswith("torch."))


def _watch_import_module(import_module: Callable[..., Any], names: _Names) -> Callable[..., Any]:
    @functools.wraps(import_module)
    def import_checked(name: str, package: str | None = None) -> Any:
        if _is_torchs(name):
            _refuse(caller(), name, ())
        result = import_module(name, package)
        names.take()
        return result

    return import_checked


def _find_spec(find_spec: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(find_spec)
    def find(name: str, package: str | None = None) -> Any:
        if _is_torchs(name):
            try:
                _refuse(caller(), name, ())
            except ModuleNotFoundError:
                return None
        return find_spec(name, package)

    return find


@contextlib.contextmanager
def names_of_the_target() -> Iterator[None]:
    """Show the program the names of the target's torch in the block; enter it after all replacements."""
    imports = builtins.__import__

    def import_checked(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        def perform() -> Any:
            return imports(name, globals, locals, fromlist, level)

        if not level and name.partition(".")[0] not in sys.modules:
            result = _again_as_installed(perform)
            take_distributions()
            return result
        if level or not _is_torchs(name):
            return perform()
        _refuse(caller(), name, fromlist or ())
        result = perform()
        names.take()
        return result

    with torch_version.version_of_the_target() as take_distributions, contextlib.ExitStack() as undo:
        names = _Names(undo)
        names.take()
        changes: list[tuple[Any, str, Callable[..., Any]]] = [
            (builtins, "__import__", import_checked),
            (importlib, "import_module", _watch_import_module(importlib.import_module, names)),
            (importlib.util, "find_spec", _find_spec(importlib.util.find_spec)),
        ]
        with replace_attributes(changes):
            yield


# -- arguments -------------------------------------------------------------------------------------------------------


_ATEN = "aten."


def has_argument(target: Target, function: str, argument: str) -> bool:
    """Return whether the target's function takes an argument that some releases lack."""
    return NAMES.load().has_argument(str(target.torch), function, argument)


DESCRIPTIONS[has_argument.__name__] = "{}({}=)".format


@functools.cache
def _in_cpp() -> dict[Any, str]:
    """Return the functions and methods of C++ whose arguments differ, with their keys in the lists."""
    functions = {}
    for key in NAMES.load().arguments:
        name = key.removeprefix(_ATEN)
        for owner in (torch, torch.Tensor, F) if name != key else ():
            function = getattr(owner, name, None)
            if isinstance(function, (BuiltinFunctionType, MethodDescriptorType)):
                functions[function] = key
    return functions


def check_in_cpp(function: Any, kwargs: dict[str, Any]) -> None:
    """Check the keywords of a function in C++; a function mode calls this.

    Raises:
        TypeError: the release that the calling code sees lacks one (python_arg_parser.cpp, ``extra_kwargs``).
    """
    if key := _in_cpp().get(function):
        _refuse_arguments(caller(2), key, function.__name__, (), kwargs)


def _refuse_arguments(
    who: Caller, key: str, name: str, args: Any, kwargs: dict[str, Any], signature: inspect.Signature | None = None
) -> None:
    if who.kind == "own" or not READS.is_target_shown():
        return
    passed = {*kwargs}
    histories = NAMES.load().arguments[key]
    # Places of arguments differ between releases where an argument was renamed or removed.
    if signature and args and all(history[-1][1] is not None for history in histories.values()):
        with contextlib.suppress(TypeError):  # which the function itself raises
            passed |= signature.bind_partial(*args, **kwargs).arguments.keys()
    for argument in histories.keys() & passed:
        if not ask_for(who, has_argument, key, argument):
            error = TypeError(f"{name}() got an unexpected keyword argument {argument!r}")
            function = key.removeprefix(_ATEN).removesuffix(".__init__")
            # capture/child/endings.py reads it
            error.lacking = f"{function}({argument}=)"  # type: ignore[attr-defined]
            raise error
        if not _is_installed(key, argument):
            raise NotSimulatedError(f"torch {INSTALLED} has no argument {argument!r} of {name}, and the target's has")


def _is_installed(key: str, argument: str) -> bool:
    names, line = NAMES.load(), str(Version.parse(INSTALLED))
    return line not in names.releases or names.has_argument(line, key, argument)


def _add_check(key: str, function: FunctionType) -> Callable[..., Any]:
    """Return the function with a check; it has no effect after the simulation, where a program may have a reference."""
    varying = frozenset(NAMES.load().arguments[key])
    code = function.__code__
    positions = (at for at, name in enumerate(code.co_varnames[: code.co_argcount]) if name in varying)
    first = min(positions, default=sys.maxsize)

    @functools.wraps(function)
    def call_checked(*args: Any, **kwargs: Any) -> Any:
        if len(args) > first or not varying.isdisjoint(kwargs):
            _refuse_arguments(caller(), key, function.__qualname__, args, kwargs, inspect.signature(function))
        return function(*args, **kwargs)

    return call_checked


def _owner(key: str) -> tuple[Any, str]:
    """Return the imported module or the class that has a function, and the function's name in it."""
    parts = key.split(".")
    for end in (-1, -2):
        if (module := sys.modules.get(".".join(parts[:end]))) is not None:
            return (module if end == -1 else vars(module).get(parts[-2])), parts[-1]
    return None, ""
