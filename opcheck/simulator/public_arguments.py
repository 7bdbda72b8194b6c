"""Refuse arguments of torch's Python functions, methods and classes that the target's release lacks.

A wrapper takes the place of each function whose arguments differ between releases; the mode of the device
(simulator/device.py) checks those in C++.  Only calls of the program and its libraries are checked.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own abbreviation

from opcheck.common.versions import Version
from opcheck.data.python_names import python_names
from opcheck.simulator import python_visible_target
from opcheck.simulator.callers import caller
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.requirements import DESCRIPTIONS, INSTALLED, ask_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.common.versions import Target
    from opcheck.simulator.callers import Caller

_ATEN = "aten."


def has_argument(target: Target, function: str, argument: str) -> bool:
    """Return whether the target's function takes an argument that some releases lack."""
    return python_names().has_argument(str(target.torch), function, argument)


DESCRIPTIONS[has_argument.__name__] = "{}({}=)".format


@functools.cache
def _arguments() -> dict[str, dict[str, Any]]:
    return python_names().arguments


@functools.cache
def _in_cpp() -> dict[Any, str]:
    """Return the functions and methods of C++ whose arguments differ, with their keys in the lists."""
    functions = {}
    for key in _arguments():
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
    key = _in_cpp().get(function)
    if key:
        _refuse(caller(2), key, function.__name__, (), kwargs)


def _refuse(
    who: Caller,
    key: str,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    signature: inspect.Signature | None = None,
) -> None:
    if who.kind == "own" or not python_visible_target.is_target_shown():
        return
    passed = {*kwargs}
    histories = _arguments()[key]
    # Places of arguments differ between releases where one was renamed or removed.
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
            message = (
                f"torch {INSTALLED} has no argument {argument!r} of {name}, and the target's has"
            )
            raise NotSimulatedError(message)


def _is_installed(key: str, argument: str) -> bool:
    names, line = python_names(), str(Version.parse(INSTALLED))
    return line not in names.releases or names.has_argument(line, key, argument)


def _add_check(key: str, function: FunctionType) -> Callable[..., Any]:
    """Return the function with a check; it has no effect after the simulation, where a program may have a reference."""
    varying = frozenset(_arguments()[key])
    code = function.__code__
    positions = (
        at for at, name in enumerate(code.co_varnames[: code.co_argcount]) if name in varying
    )
    first = min(positions, default=sys.maxsize)

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if len(args) > first or not varying.isdisjoint(kwargs):
            _refuse(caller(), key, function.__qualname__, args, kwargs, inspect.signature(function))
        return function(*args, **kwargs)

    return checked


class Functions:
    """Replaces the functions of the modules that are imported, each once."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._taken: set[str] = set()

    def take(self) -> None:
        """Replace the functions of the modules that were imported since the last call."""
        functions: dict[FunctionType, Callable[..., Any]] = {}
        changes: list[tuple[Any, str, Any]] = []
        for key in _arguments().keys() - self._taken:
            owner, name = _owner(key)
            original = vars(owner).get(name) if owner else None
            if isinstance(original, FunctionType):
                self._taken.add(key)
                functions[original] = _add_check(key, original)
                if isinstance(owner, type):
                    changes.append((owner, name, original))
        names = {function.__name__ for function in functions}
        for path, module in list(sys.modules.items()):
            if names and path.partition(".")[0] == "torch" and isinstance(module, ModuleType):
                there = vars(module)
                changes += [
                    (module, name, there[name])
                    for name in names & there.keys()
                    if isinstance(there[name], FunctionType) and there[name] in functions
                ]
        for place, name, original in changes:
            setattr(place, name, functions[original])
        self._undo += changes

    def restore(self) -> None:
        """Restore all functions."""
        for place, name, original in self._undo:
            setattr(place, name, original)
        self._undo.clear()


def _owner(key: str) -> tuple[Any, str]:
    """Return the imported module or the class that has a function, and the function's name in it."""
    parts = key.split(".")
    for end in (-1, -2):
        module = sys.modules.get(".".join(parts[:end]))
        if module is not None:
            return (module if end == -1 else vars(module).get(parts[-2])), parts[-1]
    return None, ""
