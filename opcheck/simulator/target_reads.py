"""Record what Python learned of the target in this process; a library may keep it from its import on.

Forks inherit the record.  A capture in this process is valid only for targets that would have given the same answers.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from opcheck.common.versions import Target

    Answer = TypeVar("Answer")


FALLBACK_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK"

#: the Mac that this process seems to be, the innermost last
_targets: list[Target] = []
_answers: dict[tuple[Callable[..., Any], tuple[Hashable, ...]], Any] = {}
#: called before ``fits`` decides, to record queries that show only then
SETTLE: list[Callable[[], None]] = []
#: how what the program saw differs from the target
_notes: dict[str, str] = {}
#: what the variable was read as
_fallback: set[str | None] = set()


@contextlib.contextmanager
def show_target(target: Target) -> Iterator[None]:
    """Show this target to Python for the length of the block."""
    _targets.append(target)
    try:
        yield
    finally:
        _targets.pop()


def is_target_shown() -> bool:
    """Return whether this process presents itself as a Mac."""
    return bool(_targets)


def ask(decide: Callable[..., Answer], *details: Hashable) -> Answer:
    """Return ``decide(target, *details)``, and record it; ``decide`` depends on its arguments alone."""
    answer: Answer = decide(_targets[-1], *details)
    # A fork for another target answers again; it was made because its answers are equal.
    _answers.setdefault((decide, details), answer)
    return answer


def now(decide: Callable[[Target], Answer]) -> Answer:
    """Return what applies to the target without recording it; the code that uses the value queries for itself."""
    return decide(_targets[-1])


def record_answer(decide: Callable[..., Answer], *details: Hashable, answer: Answer) -> None:
    """Record an answer that was given before."""
    _answers.setdefault((decide, details), answer)


def note(what: str, text: str) -> None:
    """Note, once for each ``what``, that the program did not see what it would see on the target."""
    _notes.setdefault(what, text)


def forget_notes() -> None:
    """Forget the notes, because a new run begins in this process."""
    _notes.clear()


def notes() -> tuple[str, ...]:
    """Return the notes in their order."""
    return tuple(_notes.values())


def is_newer(target: Target, major: int, minor: int) -> bool:
    """Return what ``torch.backends.mps.is_macos_or_newer`` returns on that Mac."""
    return (target.macos.major, target.macos.minor) >= (major, minor)


def fits(target: Target) -> bool:
    """Return whether the target would have given every recorded answer."""
    for settle in SETTLE:
        settle()
    return _fallback <= {_value(target)} and all(
        decide(target, *details) == answer for (decide, details), answer in list(_answers.items())
    )


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
            _fallback.add(value)
        if value is None:
            raise KeyError(key)
        return value


@contextlib.contextmanager
def environment_noted() -> Iterator[None]:
    """Record for the length of the block when the program reads the variable."""
    before = type(os.environ)
    os.environ.__class__ = _Noted
    try:
        yield
    finally:
        os.environ.__class__ = before


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
        return all(
            decide(counterpart, *details) == answer
            for (decide, details), answer in list(self._answers.items())
        )
