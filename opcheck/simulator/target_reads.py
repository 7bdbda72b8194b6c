"""Record what Python learned of the target in this process; a library may keep it from its import on.

Forks inherit the record.  A capture in this process is valid only for targets that would have given the same answers.
"""

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

from opcheck.common.versions import Target, Version

Answer = TypeVar("Answer")


FALLBACK_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK"


class TargetReads:
    """The record of a process: the Macs that it seems to be, and what the program and its libraries read of them."""

    def __init__(self) -> None:
        #: the Mac that this process seems to be, the innermost last
        self.targets: list[Target] = []
        self.answers: dict[tuple[Callable[..., Any], tuple[Hashable, ...]], Any] = {}
        #: called before ``fits`` decides, to record queries that show only then
        self.settle: list[Callable[[], None]] = []
        #: how what the program saw differs from the target
        self.notes: dict[str, str] = {}
        #: what PYTORCH_ENABLE_MPS_FALLBACK was read as
        self.fallback: set[str | None] = set()
        #: libraries that failed with the target's version, and that see the installed version from then on
        self.outdated: set[str] = set()
        #: all libraries see the installed version, because a library failed with the target's
        self.all_outdated = False
        #: libraries that were imported before the simulation: what they read at import is unknown
        self.imported_before: set[str] = set()
        #: the first place and answer of each query of a library, by library, query and its details
        self.of_libraries: dict[tuple[str, Callable[..., Any], tuple[Hashable, ...]], tuple[str, Any]] = {}
        #: versions of torch by their readers: an object for each reader, and the numbers read from them
        self.versions: dict[tuple[type, Any, str], Any] = {}
        self.numbers: list[Any] = []

    @contextlib.contextmanager
    def show_target(self, target: Target) -> Iterator[None]:
        """Show this target to Python for the length of the block, and record when it reads the variable."""
        before = type(os.environ)
        self.targets.append(target)
        os.environ.__class__ = _Noted
        try:
            yield
        finally:
            os.environ.__class__ = before
            self.targets.pop()

    def is_target_shown(self) -> bool:
        """Return whether this process presents itself as a Mac."""
        return bool(self.targets)

    def ask(self, decide: Callable[..., Answer], *details: Hashable) -> Answer:
        """Return ``decide(target, *details)``, and record it; ``decide`` depends on its arguments alone."""
        answer: Answer = decide(self.targets[-1], *details)
        self.record_answer(decide, *details, answer=answer)
        return answer

    def now(self, decide: Callable[[Target], Answer]) -> Answer:
        """Return what applies to the target without recording it; the code that uses the value queries for itself."""
        return decide(self.targets[-1])

    def record_answer(self, decide: Callable[..., Answer], *details: Hashable, answer: Answer) -> None:
        """Record an answer; a fork for another target answers again, and was made because its answers are equal."""
        self.answers.setdefault((decide, details), answer)

    def note(self, what: str, text: str) -> None:
        """Note, once for each ``what``, that the program did not see what it would see on the target."""
        self.notes.setdefault(what, text)

    def forget(self) -> None:
        """Forget notes and the queries of libraries, because a new run begins in this process."""
        self.notes.clear()
        self.of_libraries.clear()

    def fits(self, target: Target) -> bool:
        """Return whether the target would have given every recorded answer."""
        for settle in self.settle:
            settle()
        return self.fallback <= {_value(target)} and all(
            decide(target, *details) == answer for (decide, details), answer in list(self.answers.items())
        )


#: The record of this process: a library keeps from its import on what it read.
READS = TargetReads()


def is_before(target: Target, until: Version) -> bool:
    """Return whether the target's torch is older."""
    return target.torch < until


def is_newer(target: Target, major: int, minor: int) -> bool:
    """Return what ``torch.backends.mps.is_macos_or_newer`` returns on that Mac."""
    return (target.macos.major, target.macos.minor) >= (major, minor)


def set_fallback(target: Target) -> None:
    """Set the variable of this process as it is set for the target."""
    os.environ[FALLBACK_VARIABLE] = _value(target)


def _value(target: Target) -> str:
    return "1" if target.cpu_fallback else "0"


class _Noted(type(os.environ)):  # type: ignore[misc]  # a class without a public name
    """The environment, which records each value that it returned for the variable; copying it reads it, too."""

    def __getitem__(self, key: str) -> str:
        try:
            value: str | None = super().__getitem__(key)
        except KeyError:
            value = None
        if key == FALLBACK_VARIABLE:
            READS.fallback.add(value)
        if value is None:
            raise KeyError(key)
        return value


class TargetQueries:
    """Answers queries about a run's target, by functions of the target alone, and records the answers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._answers: dict[tuple[Callable[..., Any], tuple[Hashable, ...]], Any] = {}

    def __call__(self, decide: Callable[..., Answer], *details: Hashable) -> Answer:
        """Return ``decide(target, *details)``; ``decide`` is a module-level function of these arguments alone.

        The answer for the same details is cached, because each call of the program looks it up.
        """
        key = (decide, details)
        if key not in self._answers:
            self._answers[key] = decide(self._target, *details)
        answer: Answer = self._answers[key]
        return answer

    def answered_alike(self, counterpart: Target) -> bool:
        """Return whether another target gives the same answers to all queries so far."""
        # A copy: another thread of the program may still ask.
        return all(decide(counterpart, *details) == answer for (decide, details), answer in list(self._answers.items()))
