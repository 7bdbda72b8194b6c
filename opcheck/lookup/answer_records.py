"""Define the records of the answers.  Their fields are the documented JSON: op_lists/asking.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from opcheck.common.vocabulary import ROUTE_WORDS, Confidence, Effect, FallbackKind, Frequency, RouteKind, Status
from opcheck.model.records import Evidence, Record

OP_SCHEMA = "opcheck-op/1"


class State(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A status with its kind, and whether results are wrong beyond rare cases."""

    status: Status
    kind: FallbackKind | None
    #: how many results of a native plain call are wrong; left out: none, or in rare cases alone.
    wrong: Literal["", "always", "sometimes"] = ""


class Note(Record, frozen=True, kw_only=True):
    """A limitation or an advisory on an overload."""

    id: str
    effect: Effect
    summary: str
    #: the spans in words, ``2.3 to 2.7``; empty: every version.
    torch: str = ""
    macos: str = ""
    dtypes: tuple[str, ...] = ()
    #: the tensor arguments whose dtype counts; empty: any.
    dtypes_of: tuple[str, ...] = ()
    #: what else the call must meet, as an expression or in words.
    condition: str = ""
    when: str = ""
    prints: str = ""
    way_out: str = ""
    #: the case in words, how many calls meet it, and whether it can hold on the target's macOS.
    case: str = ""
    frequency: Frequency = "sometimes"
    holds: bool = True
    fixed: str = ""
    #: whether it decides the verdict of a plain call for the target that was asked.
    decides: bool = False
    links: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Cell(Record, frozen=True, kw_only=True):
    """What one release does from one macOS version on, up to the next cell of that release."""

    torch: str
    macos: str
    status: Status
    kind: FallbackKind | None
    #: the dtype that the status is of: the one asked, else the first that does best.
    dtype: str
    dtypes: dict[str, State]


class RouteStep(Record, frozen=True, kw_only=True):
    """What computes an overload from a release on, up to the next step."""

    torch: str
    route: RouteKind
    #: of ``either`` the ways that the kernel has.
    ways: tuple[RouteKind, ...] = ()
    #: how the names of its Metal kernels begin.
    kernels: tuple[str, ...] = ()

    def is_like(self, step: RouteStep) -> bool:
        """Return whether another step is computed in the same ways."""
        return (self.route, self.ways) == (step.route, step.ways)


class OverloadAnswer(Record, frozen=True, kw_only=True):
    """What the target does with a plain call of one overload, and the reasons."""

    name: str
    status: Status
    kind: FallbackKind | None
    because: str
    confidence: Confidence
    #: the dtype that the status is of.
    dtype: str
    dtypes: dict[str, State]
    #: first release line with the target's status, unchanged up to the target; ``≤2.13``
    #: where nothing is known of the release before it.
    since: str
    #: what the Mac prints for it.
    prints: str
    limitations: tuple[Note, ...]
    advisories: tuple[Note, ...]
    evidence: tuple[Evidence, ...]
    #: what computes a plain call.
    route: RouteKind
    #: a step for each change of the route, up to the target's release.
    routes: tuple[RouteStep, ...]
    #: how its kernel chooses among its ways on the target; empty: there is a single way, or the rule is not known.
    choice: str = ""
    #: one a release and macOS span, oldest release first; only as far as the question goes.
    releases: tuple[Cell, ...]


class Answer(Record, frozen=True, kw_only=True):
    """The answer to ``opcheck op``; ``status`` is that of the overload that ``overload`` names."""

    schema: str = OP_SCHEMA
    tool: str
    op: str
    #: torch, release, macos, dtype; ``asked`` is the torch version as written.
    target: dict[str, str | None]
    dtypes: dict[str, State]
    status: Status
    kind: FallbackKind | None
    overload: str
    because: str
    #: what computes a plain call of that overload.
    route: RouteKind
    #: the limit of a native operator that matters most: ``on the CPU above 32 KiB``; empty if none does.
    limit: str = ""
    #: what is wrong on the target in the dtype in question, or in a usual one: the most frequent first.
    wrong: tuple[Note, ...] = ()
    #: of a function with modes: the state of each.
    modes: dict[str, State] = {}
    overloads: tuple[OverloadAnswer, ...]
    #: first release line where the overload ran natively on the target's macOS.
    first_native: str | None
    notes: tuple[str, ...]
    links: tuple[str, ...]
    op_lists: dict[str, str]


def find_since(states: Mapping[str, State], lines: Sequence[str]) -> str:
    """Return the first release line whose state lasts up to the last line.

    ``≤2.13`` where nothing is known of the release before: it may have been so for longer.

    Args:
        states: by release line, where the overload exists.
        lines: the release lines in order, up to the one that is asked about.
    """
    earliest, last = lines[-1], states.get(lines[-1])
    for line in reversed(lines):
        state = states.get(line)
        if (state and (state.status, state.kind)) != (last and (last.status, last.kind)):
            return _at_most(earliest, state, last)
        earliest = line
    return earliest


def first_native(states: Mapping[str, State], lines: Sequence[str]) -> str | None:
    """Return the first release line where the overload was native; None if there is none."""
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


def route_words(step: RouteStep) -> str:
    """Return a route in words: ``MPSGraph or Metal kernel``."""
    return " or ".join(ROUTE_WORDS[way] for way in step.ways or (step.route,))
