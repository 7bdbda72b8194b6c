"""Names of torch's Python modules that the target lacks are not there for the program and its libraries.

torch's own Python is that of the installed release and keeps all of its names: it would break without them
(``torch.manual_seed`` calls ``torch.mps.manual_seed``, which 1.13 has not).  So each module that has names which are
not in every release gets a class with a property for each of them, which decides by who asks.  The dictionary of the
module stays: its own functions find their globals there.  Every such look-up of the program is a question
(simulate/told.py): a target with another answer needs a run of its own.

Methods of classes and keyword arguments are those of the installed release.
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

from opcheck.oplists.python_names import PythonNames, python_names
from opcheck.simulate import told
from opcheck.simulate.callers import caller
from opcheck.simulate.requirements import sees_the_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from opcheck.versions import Target


def has_name(target: Target, module: str, name: str) -> bool:
    """Whether the target's module has a name that is not in every release."""
    return _names().has(str(target.torch), module, name)


@functools.cache
def _names() -> PythonNames:
    return python_names()


def _lacks(module: str, name: str) -> bool:
    """Whether the target's module is known to lack the name."""
    return name in _names().modules.get(module, ()) and not told.ask(has_name, module, name)


def _decided(module_name: str, name: str) -> property:
    """The name as an attribute: read from the module's dictionary, where the target has it or torch itself asks."""

    def get(module: ModuleType) -> Any:
        there = vars(module)
        if told.is_telling() and sees_the_target(caller()):
            if not told.ask(has_name, module_name, name):
                return _no_attribute(module, name)
            if name not in there:
                told.note(f"the installed torch has no {module_name}.{name}")
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
    """What ``import *`` takes; of a module that lists nothing, all that has no underscore."""
    there = vars(module)
    whole = not sees_the_target(caller())
    if "__all__" not in there and whole:
        _no_attribute(module, "__all__")
    listed = there.get("__all__") or [name for name in there if not name.startswith("_")]
    if whole:
        return list(listed)
    return [name for name in listed if not _lacks(module.__name__, name)]


def _class_for(module: ModuleType, names: Iterable[str]) -> type[ModuleType]:
    """A class for the module with a property for each of the names; look-ups of others find the dictionary."""

    def listed(module: ModuleType) -> list[str]:
        names = [*ModuleType.__dir__(module)]
        if not sees_the_target(caller()):
            return names
        return [name for name in names if not _lacks(module.__name__, name)]

    properties = {name: _decided(module.__name__, name) for name in names}
    return type(
        "module", (ModuleType,), {**properties, "__all__": property(_all), "__dir__": listed}
    )


class _Names:
    """All modules that are imported, each once."""

    def __init__(self) -> None:
        self._taken: dict[str, ModuleType] = {}
        self._seen = 0

    def take(self) -> None:
        """Give those that were imported since a class that decides."""
        if len(sys.modules) == self._seen:
            return
        self._seen = len(sys.modules)
        for name, names in _names().modules.items():
            module = sys.modules.get(name)
            # Modules with a class of their own (torch.compiler.config) decide about attributes themselves.
            if type(module) is ModuleType:
                self._taken[name] = module
                module.__class__ = _class_for(module, names)

    def restore(self) -> None:
        """All as they were."""
        for module in self._taken.values():
            module.__class__ = ModuleType


def _refuse(name: str, fromlist: tuple[str, ...]) -> None:
    """Raise what an import raises where the target lacks it.

    Raises:
        ModuleNotFoundError: the target has no such module.
        ImportError: its module has no such name.
    """
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        if _lacks(".".join(parts[: end - 1]), parts[end - 1]):
            missing = ".".join(parts[:end])
            message = f"No module named {missing!r}"
            raise ModuleNotFoundError(message, name=missing)
    for attribute in fromlist:
        if _lacks(name, attribute):
            file = getattr(sys.modules.get(name), "__file__", None)
            message = f"cannot import name {attribute!r} from {name!r} ({file})"
            raise ImportError(message, name=name, path=file)


def _is_torchs(name: object) -> bool:
    return isinstance(name, str) and (name == "torch" or name.startswith("torch."))


@contextlib.contextmanager
def names_of_the_target() -> Iterator[None]:
    """For the length of the block the program sees the names of the target's torch; enter it after all replacements."""
    names = _Names()
    imports = builtins.__import__
    import_module, find_spec = importlib.import_module, importlib.util.find_spec

    def imported(
        name: str,
        globals: Any = None,  # noqa: A002 - the names that __import__ has
        locals: Any = None,  # noqa: A002
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        if level or not _is_torchs(name):
            return imports(name, globals, locals, fromlist, level)
        if sees_the_target(caller()):
            _refuse(name, tuple(fromlist or ()))
        result = imports(name, globals, locals, fromlist, level)
        names.take()
        return result

    @functools.wraps(import_module)
    def module_imported(name: str, package: str | None = None) -> Any:
        if _is_torchs(name) and sees_the_target(caller()):
            _refuse(name, ())
        result = import_module(name, package)
        names.take()
        return result

    @functools.wraps(find_spec)
    def spec_found(name: str, package: str | None = None) -> Any:
        if _is_torchs(name) and sees_the_target(caller()):
            with contextlib.suppress(ModuleNotFoundError):
                _refuse(name, ())
                return find_spec(name, package)
            return None
        return find_spec(name, package)

    changes: list[tuple[Any, str, Callable[..., Any]]] = [
        (builtins, "__import__", imported),
        (importlib, "import_module", module_imported),
        (importlib.util, "find_spec", spec_found),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    names.take()
    for place, name, function in changes:
        setattr(place, name, function)
    try:
        yield
    finally:
        for place, name, function in before:
            setattr(place, name, function)
        names.restore()
