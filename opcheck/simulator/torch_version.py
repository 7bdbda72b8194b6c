"""Present ``torch.__version__`` and the version of torch's distribution to the program and its libraries.

A version that was read is a text that notes what is asked of it.  A comparison is a question with a
boolean answer (simulator/python_visible_target.py), whether it is made by ``torch.__version__ >=
"2.4"`` or by ``packaging.version``: another target shares the run where all comparisons agree.  Any
other use is a question whose answer is the whole text.  So is a text that nothing was asked of: a
regular expression reads it without a trace.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import operator
import sys
from typing import TYPE_CHECKING, Any

from packaging.version import Version as PackagingVersion
from torch.torch_version import TorchVersion

from opcheck.simulator import python_visible_target
from opcheck.simulator.callers import Caller, caller
from opcheck.simulator.requirements import (
    INSTALLED,
    admits,
    note_installed,
    sees_the_target,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from types import ModuleType

    from opcheck.common.versions import Target

_COMPARISONS = {
    f"__{name}__": getattr(operator, name) for name in ("lt", "le", "eq", "ne", "ge", "gt")
}


def text_of(target: Target, package: str) -> str:
    """Return the version that a library, or with an empty name the program, sees."""
    return version_of(target) if admits(target, package) else INSTALLED


def compares(target: Target, package: str, kind: type, name: str, operand: Hashable) -> bool:
    """Compare the version as a text, as a TorchVersion, or as packaging's Version."""
    return bool(_COMPARISONS[name](kind(text_of(target, package)), operand))


def part_of(target: Target, package: str, name: str) -> Any:
    """Return an attribute of packaging's Version."""
    return getattr(PackagingVersion(text_of(target, package)), name)


class SeenText(str):  # noqa: SLOT000 - it keeps who read it
    """The version as a text that records its use."""

    kind: type = str
    package: str
    used: bool

    def whole(self) -> str:
        """Return the text itself, and record the query."""
        self.used = True
        if not python_visible_target.is_telling():
            return str.__str__(self)
        return python_visible_target.ask(text_of, self.package)

    def __reduce__(self) -> Any:
        return str, (self.whole(),)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return self.__reduce__()


class SeenTorchVersion(SeenText, TorchVersion):
    """The target's ``torch.__version__``."""

    kind = TorchVersion


def _compared(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: SeenText, operand: Any) -> Any:
        if isinstance(operand, SeenText):
            operand = operand.whole()
        if isinstance(operand, list):
            operand = tuple(operand)
        if not python_visible_target.is_telling() or not isinstance(operand, (str, tuple)):
            return _COMPARISONS[name](self.kind(self.whole()), operand)
        self.used = True
        return python_visible_target.ask(compares, self.package, self.kind, name, operand)

    return compare


def _by_the_whole(name: str) -> Callable[..., Any]:
    def method(self: SeenText, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.whole(), name)(*args, **kwargs)

    return method


#: what an object needs to be one
_KEPT = frozenset(
    {
        "__class__",
        "__new__",
        "__init__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__dir__",
    }
    | {"__doc__", "__init_subclass__", "__subclasshook__", "__reduce__", "__reduce_ex__"}
    | {"__getstate__", "__sizeof__", "__getnewargs__", "__annotations__", "maketrans"}
)
for _kind in (SeenText, SeenTorchVersion):
    for _name in set(dir(str)) - _KEPT:
        _make = _compared if _name in _COMPARISONS else _by_the_whole
        setattr(_kind, _name, _make(_name))


class _SeenVersion(PackagingVersion):
    """packaging's Version of a recorded text."""

    __slots__ = ()
    package = ""


def _version_compared(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: _SeenVersion, operand: Any) -> Any:
        if not python_visible_target.is_telling() or not isinstance(operand, PackagingVersion):
            return getattr(PackagingVersion, name)(self, operand)
        plain = PackagingVersion(str(operand))
        return python_visible_target.ask(compares, self.package, PackagingVersion, name, plain)

    return compare


def _part(name: str) -> property:
    def get(self: _SeenVersion) -> Any:
        if python_visible_target.is_telling():
            return python_visible_target.ask(part_of, self.package, name)
        return getattr(PackagingVersion, name).__get__(self)

    return property(get)


def _as_text(self: _SeenVersion) -> SeenText:
    # Releases have neither a local nor a development part: the public and the base version are the whole.
    return _made(SeenText, PackagingVersion.__str__(self), self.package)


def _whole_version(self: _SeenVersion) -> str:
    return (
        python_visible_target.ask(text_of, self.package)
        if python_visible_target.is_telling()
        else PackagingVersion.__str__(self)
    )


for _name in _COMPARISONS:
    setattr(_SeenVersion, _name, _version_compared(_name))
for _name in ("major", "minor", "micro", "release", "epoch", "pre", "post", "dev", "local"):
    setattr(_SeenVersion, _name, _part(_name))
for _name in ("base_version", "public"):
    setattr(_SeenVersion, _name, property(_as_text))
for _name, _function in (
    ("__str__", _whole_version),
    ("__hash__", lambda version: hash(_whole_version(version))),
):
    setattr(_SeenVersion, _name, _function)


@functools.cache
def _version_class(package: str) -> type[_SeenVersion]:
    return type("Version", (_SeenVersion,), {"__slots__": (), "package": package})


def _made(kind: type[SeenText], text: str, package: str) -> SeenText:
    made = kind(text)
    made.package, made.used = package, False
    return made


#: by who read it: one object, however often that line runs
_read: dict[tuple[type[SeenText], Caller, str], SeenText] = {}


def seen(kind: type[SeenText], who: Caller) -> Any:
    """Return the version as that code sees it; None for torch's own code, which sees the installed version."""
    if who.kind == "own" or not python_visible_target.is_telling():
        return None
    text = python_visible_target.now(version_of)
    if not sees_the_target(who):
        if text != INSTALLED:
            note_installed(who, "torch.__version__")
        # No question: what it does is the same for every target.
        return kind.kind(INSTALLED)
    key = (kind, who, text)
    if key not in _read:
        _read[key] = _made(kind, text, who.package)
    return _read[key]


def readers() -> set[str]:
    """Return the libraries that have read the version so far."""
    return {who.package for _, who, _ in _read if who.package}


def _settle() -> None:
    """Record the whole text of versions that were read, and then used in no visible way."""
    for (_, who, text), made in list(_read.items()):
        if not made.used:
            python_visible_target.answered(text_of, who.package, answer=text)


python_visible_target.SETTLE.append(_settle)


def torch_version_property(kind: type[SeenText]) -> property:
    """Return the property ``__version__`` of a module of torch."""

    def get(module: ModuleType) -> Any:
        version = seen(kind, caller())  # not tested for truth, which would record a query
        return vars(module)["__version__"] if version is None else version

    def put(module: ModuleType, value: Any) -> None:
        vars(module)["__version__"] = value

    return property(get, put)


class Distributions:
    """The classes whose ``version`` reports the target's torch: importlib.metadata's, and its backport's.

    Once the backport is imported (diffusers does it), importlib.metadata gives distributions of its class, too.
    """

    def __init__(self) -> None:
        self._versions: dict[Any, property] = {}

    def take(self) -> None:
        """Replace ``version`` of each class that has been imported by now."""
        for name in ("importlib.metadata", "importlib_metadata"):
            distribution = getattr(sys.modules.get(name), "Distribution", None)
            if distribution is not None and distribution not in self._versions:
                self._versions[distribution] = distribution.version
                distribution.version = property(_version_seen(distribution.version))

    def restore(self) -> None:
        """Restore the classes' own ``version``."""
        for distribution, version in self._versions.items():
            distribution.version = version


def _version_seen(before: property) -> Callable[[Any], str]:
    def version(self: importlib.metadata.Distribution) -> str:
        installed: str = before.__get__(self)
        of_target = seen(SeenText, caller()) if self.metadata["Name"] == "torch" else None
        return installed if of_target is None else of_target

    return version


@contextlib.contextmanager
def version_of_the_target() -> Iterator[Distributions]:
    """Report the target's torch through ``importlib.metadata``, and record comparisons, in the block."""
    parse = PackagingVersion.__init__

    def parsed(self: PackagingVersion, version: Any) -> None:
        if not isinstance(version, SeenText):
            parse(self, version)
            return
        version.used = True
        parse(self, str.__str__(version))
        if type(self) is PackagingVersion:
            self.__class__ = _version_class(version.package)

    distributions = Distributions()
    distributions.take()
    PackagingVersion.__init__ = parsed  # type: ignore[method-assign]
    try:
        yield distributions
    finally:
        PackagingVersion.__init__ = parse  # type: ignore[method-assign]
        distributions.restore()
