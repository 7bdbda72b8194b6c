"""What a run asks of its target while it runs, so that another target can be asked the same without a run.

A run is a function of its program and of these answers: a target that answers each of them alike
would have run the same calls.  Whatever depends on the target is asked here, on the registrations
(simulator/same_dispatch.py), or is told to Python (simulator/python_visible_target.py); nothing
else knows the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from opcheck.common.versions import Target

    Answer = TypeVar("Answer")


class TargetQueries:
    """The target of a run, which answers by functions of it alone, and keeps what it was asked."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._answers: dict[tuple[Callable[..., Any], tuple[Hashable, ...]], Any] = {}

    def __call__(self, decide: Callable[..., Answer], *details: Hashable) -> Answer:
        """``decide(target, *details)``: a function at the top of a module, of these arguments alone.

        Answered once for the same details: a call of the program pays for looking it up.
        """
        key = (decide, details)
        if key not in self._answers:
            self._answers[key] = decide(self._target, *details)
        answer: Answer = self._answers[key]
        return answer

    def answered_alike(self, counterpart: Target) -> bool:
        """Whether the other target answers all that was asked so far as this one did."""
        # A copy: another thread of the program may still ask.
        return all(
            decide(counterpart, *details) == answer
            for (decide, details), answer in list(self._answers.items())
        )
