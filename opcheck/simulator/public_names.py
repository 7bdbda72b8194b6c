"""Hide names of torch's Python modules that the target lacks from the program and its libraries.

torch's own Python is that of the installed release and keeps all of its names: it would break without them
(``torch.manual_seed`` calls ``torch.mps.manual_seed``, which 1.13 has not).  So each module that has names which are
not in every release gets a class with a property for each of them, which decides by who asks.  The dictionary of the
module stays: its own functions find their globals there.  Every such look-up of the program is a question
(simulator/python_visible_target.py): a target with another answer needs a run of its own.

Methods of classes are those of the installed release; public_arguments.py refuses arguments.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.replacing import replaced
from opcheck.data.python_names import PythonNames, python_names
from opcheck.data.registrations import load
from opcheck.simulator import public_arguments, python_visible_target
from opcheck.simulator.callers import Caller, caller
from opcheck.simulator.requirements import (
    DESCRIPTIONS,
    INSTALLED,
    ask_for,
    outdated,
    version_of,
)
from opcheck.simulator.torch_version import (
    SeenText,
    SeenTorchVersion,
    readers,
    torch_version_property,
    version_of_the_target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opcheck.common.versions import Target


#: the modules that have torch's version
_VERSIONS: dict[str, type[SeenText]] = {
    "torch": SeenTorchVersion,
    "torch.torch_version": SeenTorchVersion,
    "torch.version": SeenText,
}


def has_name(target: Target, module: str, name: str) -> bool:
    """Return whether the target's module has a name that some releases lack."""
    line = str(target.torch)
    if module == "torch" and name in _private_functions():
        return name in _operator_names(line)
    return _names().has(line, module, name)


DESCRIPTIONS[has_name.__name__] = "{}.{}".format


@functools.cache
def _names() -> PythonNames:
    return python_names()


@functools.cache
def _varying(module: str) -> frozenset[str]:
    """Return the names of a module that some releases lack."""
    names = frozenset(_names().modules.get(module, ()))
    return names | _private_functions() if module == "torch" else names


@functools.cache
def _private_functions() -> frozenset[str]:
    """Return functions such as ``torch._grouped_mm``, which torch makes of operators that some releases lack.

    The lists of Python names hold public names alone.
    """
    lines = [release.line for release in load().releases]
    operators = [_operator_names(line) for line in lines]
    some = frozenset.union(*operators) - frozenset.intersection(*operators)
    return frozenset(name for name in some if name.startswith("_")) & vars(torch).keys()


@functools.cache
def _operator_names(line: str) -> frozenset[str]:
    """Return the names of a release's operators of ATen, without their overloads."""
    names = (name.partition("::") for name in load().operators(line))
    return frozenset(name.partition(".")[0] for space, _, name in names if space == "aten")


def _lacks(who: Caller, module: str, name: str) -> bool:
    """Return whether the module of the release that the code sees is known to lack the name."""
    return (
        _sees_a_release(who)
        and name in _varying(module)
        and not ask_for(who, has_name, module, name)
    )


def _sees_a_release(who: Caller) -> bool:
    return who.kind != "own" and python_visible_target.is_target_shown()


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
                python_visible_target.note(
                    dotted, f"the installed torch has no {dotted}, and the program found none"
                )
        return there[name] if name in there else _no_attribute(module, name)

    def put(module: ModuleType, value: Any) -> None:
        vars(module)[name] = value

    def remove(module: ModuleType) -> None:
        del vars(module)[name]

    return property(get, put, remove)


def _no_attribute(module: ModuleType, name: str) -> Any:
    message = f"module {module.__name__!r} has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=module)


def _all(module: ModuleType) -> list[str]:
    """Return the names that ``import *`` takes; without ``__all__``, all names without an underscore."""
    there = vars(module)
    who = caller()
    if "__all__" not in there and not _sees_a_release(who):
        _no_attribute(module, "__all__")
    listed = there.get("__all__") or [name for name in there if not name.startswith("_")]
    return [name for name in listed if not _lacks(who, module.__name__, name)]


def _class_for(module: ModuleType, names: Iterable[str]) -> type[ModuleType]:
    """Return a class for the module, with a property for each name; other look-ups reach the dictionary."""

    def listed(module: ModuleType) -> list[str]:
        who = caller()
        return [
            name for name in ModuleType.__dir__(module) if not _lacks(who, module.__name__, name)
        ]

    properties = {name: _make_property(module.__name__, name) for name in names}
    if module.__name__ in _VERSIONS:
        properties["__version__"] = torch_version_property(_VERSIONS[module.__name__])
    return type(
        "module", (ModuleType,), {**properties, "__all__": property(_all), "__dir__": listed}
    )


class _Names:
    """Replaces the classes of all imported modules, each once."""

    def __init__(self) -> None:
        self._taken: dict[str, ModuleType] = {}
        self._arguments = public_arguments.Functions()
        self._seen = 0

    def take(self) -> None:
        """Give a deciding class to the modules that were imported since the last call."""
        if len(sys.modules) == self._seen:
            return
        self._seen = len(sys.modules)
        self._arguments.take()
        for name in _names().modules.keys() | _VERSIONS.keys():
            names = _varying(name)
            module = sys.modules.get(name)
            # Modules with a class of their own (torch.compiler.config) decide about attributes themselves.
            if type(module) is ModuleType:
                self._taken[name] = module
                module.__class__ = _class_for(module, names)

    def restore(self) -> None:
        """Restore the classes of all modules, and the functions."""
        self._arguments.restore()
        for module in self._taken.values():
            module.__class__ = ModuleType


def _refuse(who: Caller, name: str, fromlist: tuple[str, ...]) -> None:
    """Raise what an import raises if the release that the code sees lacks it.

    Raises:
        ModuleNotFoundError: the target has no such module.
        ImportError: its module has no such name.
    """
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        if _lacks(who, ".".join(parts[: end - 1]), parts[end - 1]):
            missing = ".".join(parts[:end])
            message = f"No module named {missing!r}"
            raise ModuleNotFoundError(message, name=missing)
    for attribute in fromlist:
        if _lacks(who, name, attribute):
            file = getattr(sys.modules.get(name), "__file__", None)
            message = f"cannot import name {attribute!r} from {name!r} ({file})"
            raise ImportError(message, name=name, path=file)


def _again_as_installed(perform: Callable[[], Any]) -> Any:
    """Import; if that fails after a library read the target's version, import with the installed version."""
    if (
        not python_visible_target.is_target_shown()
        or python_visible_target.now(version_of) == INSTALLED
    ):
        return perform()
    loaded, read = {*sys.modules}, readers()
    try:
        return perform()
    except Exception:
        suspects = readers() - read - outdated
        if not suspects:
            raise
        outdated.update(suspects)
        for name in {*sys.modules} - loaded:
            if name.partition(".")[0] in suspects:
                del sys.modules[name]
        try:
            return perform()
        except Exception:  # noqa: BLE001 - of any library: what it raised first is told
            outdated.difference_update(suspects)
        raise


def _is_torchs(name: object) -> bool:
    return isinstance(name, str) and (name == "torch" or name.startswith("torch."))


def _watch_import_module(import_module: Callable[..., Any], names: _Names) -> Callable[..., Any]:
    @functools.wraps(import_module)
    def imported(name: str, package: str | None = None) -> Any:
        if _is_torchs(name):
            _refuse(caller(), name, ())
        result = import_module(name, package)
        names.take()
        return result

    return imported


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
    names = _Names()
    imports = builtins.__import__

    def imported(
        name: str,
        globals: Any = None,  # noqa: A002 - the names that __import__ has
        locals: Any = None,  # noqa: A002
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        def perform() -> Any:
            return imports(name, globals, locals, fromlist, level)

        if not level and name.partition(".")[0] not in sys.modules:
            result = _again_as_installed(perform)
            distributions.take()
            return result
        if level or not _is_torchs(name):
            return perform()
        _refuse(caller(), name, tuple(fromlist or ()))
        result = perform()
        names.take()
        return result

    changes: list[tuple[Any, str, Callable[..., Any]]] = [
        (builtins, "__import__", imported),
        (importlib, "import_module", _watch_import_module(importlib.import_module, names)),
        (importlib.util, "find_spec", _find_spec(importlib.util.find_spec)),
    ]
    names.take()
    with version_of_the_target() as distributions:
        try:
            with replaced(changes):
                yield
        finally:
            names.restore()
