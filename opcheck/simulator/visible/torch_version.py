"""Present ``torch.__version__`` and the version of torch's distribution to the program and its libraries.

A version that was read is a text that notes what is read of it.  A comparison is a question with a
boolean answer (simulator/target_reads.py), whether it is made by ``torch.__version__ >=
"2.4"`` or by ``packaging.version``: another target shares the run where all comparisons agree.  Any
other use is a question whose answer is the whole text.  So is a text without a visible use: a
regular expression reads it without a trace.
"""

import contextlib
import functools
import importlib.metadata
import linecache
import operator
import re
import sys
from collections.abc import Callable, Hashable, Iterator
from types import FrameType, ModuleType
from typing import Any

from packaging.version import Version as PackagingVersion
from torch.torch_version import TorchVersion

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target
from opcheck.simulator.target_reads import READS
from opcheck.simulator.visible import requirements
from opcheck.simulator.visible.requirements import Caller, ask_for, caller, version_of

#: how a comparison is written, by the name of its method
_SIGNS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "ge": ">=", "gt": ">"}
_SIGNS = {f"__{name}__": sign for name, sign in _SIGNS.items()}
_COMPARISONS = {name: getattr(operator, name) for name in _SIGNS}


def compares(target: Target, kind: type, name: str, operand: Hashable) -> bool:
    """Compare the version as a text, as a TorchVersion, or as packaging's Version."""
    return bool(_COMPARISONS[name](kind(version_of(target)), operand))


def part_of(target: Target, name: str) -> Any:
    """Return an attribute of packaging's Version."""
    return getattr(PackagingVersion(version_of(target)), name)


def part_compares(target: Target, part: str, name: str, operand: int) -> bool:
    """Compare a number of packaging's Version."""
    return bool(_COMPARISONS[name](part_of(target, part), operand))


requirements.DESCRIPTIONS[compares.__name__] = lambda _, name, operand: f"torch.__version__ {_SIGNS[name]} {operand}"
requirements.DESCRIPTIONS[part_of.__name__] = "torch.__version__, {}".format
requirements.DESCRIPTIONS[part_compares.__name__] = lambda part, name, operand: (
    f"torch.__version__, {part} {_SIGNS[name]} {operand}"
)


class SeenText(str):  # noqa: SLOT000 - it keeps who read it
    """The version as a text that records its use."""

    kind: type = str
    reader: Caller
    used: bool

    def whole(self) -> str:
        """Return the text itself, and record the query."""
        self.used = True
        if not READS.is_target_shown():
            return str.__str__(self)
        return ask_for(self.reader, version_of)

    def __reduce__(self) -> Any:
        return str, (self.whole(),)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return self.__reduce__()

    def question(self, name: str, operand: Any) -> tuple[Any, ...] | None:
        """Return the question that a comparison is; None where it needs the whole."""
        return (compares, self.kind, name, operand) if isinstance(operand, (str, tuple)) else None


class SeenTorchVersion(SeenText, TorchVersion):
    """The target's ``torch.__version__``."""

    kind = TorchVersion


class _SeenNumber(int):
    """A number of packaging's Version that records its use."""

    kind: type = int
    reader: Caller
    part: str
    used: bool

    def whole(self) -> int:
        """Return the number itself, and record the query."""
        self.used = True
        return ask_for(self.reader, part_of, self.part) if READS.is_target_shown() else int.__int__(self)

    def question(self, name: str, operand: Any) -> tuple[Any, ...] | None:
        """Return the question that a comparison is; None where it needs the whole."""
        return (part_compares, self.part, name, operand) if type(operand) is int else None


def _make_comparison(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, operand: Any) -> Any:
        if isinstance(operand, (SeenText, _SeenNumber)):
            operand = operand.whole()
        if isinstance(operand, list):
            operand = tuple(operand)
        question = self.question(name, operand)
        if question is None or not READS.is_target_shown():
            return _COMPARISONS[name](self.kind(self.whole()), operand)
        self.used = True
        return ask_for(_asks(self.reader), *question)

    return compare


def _asks(reader: Caller) -> Caller:
    """Return who compares, or who read the version if the comparison is in another library's code."""
    who = caller(2)
    return who if who.package == reader.package else reader


def _by_the_whole(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.whole(), name)(*args, **kwargs)

    return method


def _as_message(name: str) -> Callable[..., Any]:
    """Return a method that records no query where the text goes to a log: no code decides by it."""
    method = _by_the_whole(name)

    def format_text(self: SeenText, *args: Any) -> Any:
        if not _is_logged(sys._getframe(1)):
            return method(self, *args)
        self.used = True
        return getattr(_read_unrecorded(self.reader, self), name)(*args)

    return format_text


def _is_logged(frame: FrameType) -> bool:
    """Return whether the frame belongs to ``logging``, or its line begins with a call of a logger."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return frame.f_globals.get("__name__") == "logging" or bool(_LOG_CALL.match(line))


def _read_unrecorded(reader: Caller, text: str) -> str:
    """Return the version without a query, for objects that record their own use."""
    if not READS.is_target_shown():
        return str.__str__(text)
    return READS.now(lambda target: requirements.as_seen(target, reader.package, version_of))


_LOG_CALL = re.compile(r"\s*(?:\w+\.)*_?log(?:ger|ging)?\.\w+\(", re.IGNORECASE)
#: what an object needs to be one
_KEPT = frozenset(
    {"__class__", "__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__", "__dir__"}
    | {"__doc__", "__init_subclass__", "__subclasshook__", "__reduce__", "__reduce_ex__"}
    | {"__getstate__", "__sizeof__", "__getnewargs__", "__annotations__", "maketrans", "from_bytes"}
)
for _kind, _base in ((SeenText, str), (SeenTorchVersion, str), (_SeenNumber, int)):
    for _name in {name for name in dir(_base) if callable(getattr(_base, name))} - _KEPT:
        _make = _make_comparison if _name in _COMPARISONS else _by_the_whole
        _make = _as_message if _base is str and _name in {"__str__", "__format__"} else _make
        setattr(_kind, _name, _make(_name))


class _SeenVersion(PackagingVersion):
    """packaging's Version of a recorded text."""

    __slots__ = ()
    reader: Caller
    text: str


def _version_compared(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: _SeenVersion, operand: Any) -> Any:
        if not isinstance(operand, PackagingVersion):
            return getattr(PackagingVersion, name)(self, operand)
        plain = PackagingVersion(str(operand))
        if not READS.is_target_shown():
            return getattr(PackagingVersion(_whole_version(self)), name)(plain)
        return ask_for(_asks(self.reader), compares, PackagingVersion, name, plain)

    return compare


def _part(name: str) -> property:
    def get(self: _SeenVersion) -> Any:
        if READS.is_target_shown():
            return ask_for(self.reader, part_of, name)
        return getattr(PackagingVersion, name).__get__(self)

    return property(get)


def _number(name: str) -> property:
    def get(self: _SeenVersion) -> Any:
        value = getattr(PackagingVersion, name).__get__(PackagingVersion(_read_unrecorded(self.reader, self.text)))
        number = _SeenNumber(value)
        number.reader, number.part, number.used = self.reader, name, False
        READS.numbers.append(number)
        return number

    return property(get)


def _as_text(self: _SeenVersion) -> SeenText:
    return _make_seen(SeenText, _read_unrecorded(self.reader, self.text), self.reader)


def _whole_version(self: _SeenVersion) -> str:
    if READS.is_target_shown():
        return ask_for(self.reader, version_of)
    return _read_unrecorded(self.reader, self.text)


for _name in _COMPARISONS:
    setattr(_SeenVersion, _name, _version_compared(_name))
for _name in ("release", "epoch", "pre", "post", "dev", "local"):
    setattr(_SeenVersion, _name, _part(_name))
for _name in ("major", "minor", "micro"):
    setattr(_SeenVersion, _name, _number(_name))
for _name in ("base_version", "public"):
    # Releases have neither a local nor a development part: these are the whole.
    setattr(_SeenVersion, _name, property(_as_text))
for _name, _function in (("__str__", _whole_version), ("__hash__", lambda version: hash(_whole_version(version)))):
    setattr(_SeenVersion, _name, _function)


@functools.cache
def _version_class(reader: Caller, text: str) -> type[_SeenVersion]:
    return type("Version", (_SeenVersion,), {"__slots__": (), "reader": reader, "text": text})


def _make_seen(kind: type[SeenText], text: str, reader: Caller) -> SeenText:
    result = kind(text)
    result.reader, result.used = reader, False
    return result


def show_version(kind: type[SeenText], who: Caller) -> Any:
    """Return the version as that code sees it; None for torch's own code, which sees the installed version."""
    if who.kind == "own" or not READS.is_target_shown():
        return None
    if requirements.is_outdated(who.package):
        # No question: what it does is the same for every target.
        return kind.kind(ask_for(who, version_of))
    text = READS.now(lambda target: requirements.as_seen(target, who.package, version_of))
    key = (kind, who, text)
    if key not in READS.versions:
        READS.versions[key] = _make_seen(kind, text, who)
    return READS.versions[key]


def readers() -> set[str]:
    """Return the libraries that have read the version so far."""
    return {who.package for _, who, _ in READS.versions if who.package}


def _settle() -> None:
    """Record the whole text of versions that were read, and then used in no visible way."""
    for (_, who, text), result in list(READS.versions.items()):
        if not result.used:
            _record_answer(who, text, version_of)
    for number in READS.numbers:
        if not number.used:
            _record_answer(number.reader, int.__int__(number), part_of, number.part)
    READS.numbers.clear()


def _record_answer(who: Caller, answer: Any, decide: Callable[..., Any], *details: Hashable) -> None:
    READS.record_answer(requirements.as_seen, who.package, decide, *details, answer=answer)
    requirements.record(who, answer, decide, *details)


READS.settle.append(_settle)


def torch_version_property(kind: type[SeenText]) -> property:
    """Return the property ``__version__`` of a module of torch."""

    def get(module: ModuleType) -> Any:
        version = show_version(kind, caller())  # not tested for truth, which would record a query
        return vars(module)["__version__"] if version is None else version

    return property(get, lambda module, value: vars(module).update(__version__=value))


def _version_seen(before: property) -> Callable[[Any], str]:
    def version(self: importlib.metadata.Distribution) -> str:
        installed: str = before.__get__(self)
        of_target = show_version(SeenText, caller()) if self.metadata["Name"] == "torch" else None
        return installed if of_target is None else of_target

    return version


@contextlib.contextmanager
def version_of_the_target() -> Iterator[Callable[[], None]]:
    """Report the target's torch through ``importlib.metadata``, and record comparisons, in the block.

    Once its backport is imported (diffusers does it), importlib.metadata gives distributions of the backport's class,
    too: the value replaces ``version`` of each class that has been imported by now.
    """
    parse = PackagingVersion.__init__

    def parse_seen(self: PackagingVersion, version: Any) -> None:
        if not isinstance(version, SeenText):
            parse(self, version)
            return
        version.used = True
        parse(self, str.__str__(version))
        if type(self) is PackagingVersion:
            self.__class__ = _version_class(version.reader, str.__str__(version))

    taken = set()
    with contextlib.ExitStack() as undo:

        def take_distributions() -> None:
            for name in ("importlib.metadata", "importlib_metadata"):
                distribution = getattr(sys.modules.get(name), "Distribution", None)
                if distribution is not None and distribution not in taken:
                    taken.add(distribution)
                    version = property(_version_seen(distribution.version))
                    undo.enter_context(replace_attributes([(distribution, "version", version)]))

        take_distributions()
        undo.enter_context(replace_attributes([(PackagingVersion, "__init__", parse_seen)]))
        yield take_distributions
