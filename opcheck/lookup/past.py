"""Derive since when a state holds from the states of the earlier releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opcheck.lookup.records import State


def since(states: Mapping[str, State], lines: Sequence[str]) -> str:
    """Return the first release line from which on the state is that of the last line.

    ``≤2.13`` where nothing is known of the release before: it may have been so for longer.

    Args:
        states: by release line, where the overload exists.
        lines: the release lines in order, up to the one that is asked about.
    """
    earliest, last = lines[-1], states.get(lines[-1])
    for line in reversed(lines):
        if states.get(line) != last:
            return _at_most(earliest, states.get(line), last)
        earliest = line
    return earliest


def first_native(states: Mapping[str, State], lines: Sequence[str]) -> str | None:
    """Return the first release line in which the overload was native; None if there is none."""
    before: State | None = None
    for line in lines:
        state = states.get(line)
        if state is not None and state.status == "native":
            return _at_most(line, before, state)
        before = state
    return None


def _at_most(line: str, before: State | None, state: State | None) -> str:
    unknown = before is not None and before.status == "unknown"
    return f"≤{line}" if unknown and state is not None else line
