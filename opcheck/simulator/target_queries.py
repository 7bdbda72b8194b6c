"""Record what a run queries of its target, so that the same queries can be put to another target without a run.

A run is a function of its program and of these answers: a target that answers each of them alike
would have run the same calls.  All that depends on the target is queried here, depends on the
registrations (simulator/same_dispatch.py), or is shown to Python
(simulator/python_visible_target.py); no other code knows the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from opcheck.common.versions import Target

    Answer = TypeVar("Answer")


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
