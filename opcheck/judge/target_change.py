"""Find the smallest change of torch or macOS that makes calls run, according to the lists."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.data.registrations import OpLists
from opcheck.judge.judge import judge_all, outcome
from opcheck.model.records import OpCall, Record, Verdict


class VersionChange(Record, frozen=True, kw_only=True):
    """The versions to change; a version that stays is empty."""

    torch: str = ""
    macos: str = ""

    def __str__(self) -> str:
        """Return ``macOS 14``, ``torch 2.15`` or ``torch 2.3 on macOS 14``."""
        system = f"macOS {self.macos.removesuffix('.0')}" if self.macos else ""
        release = f"torch {self.torch}" if self.torch else ""
        return " on ".join(part for part in (release, system) if part)


def runs(verdict: Verdict) -> bool:
    """Return whether a call with this verdict runs with no variable set."""
    return outcome(verdict).side in {"mps", "cpu"} and verdict.kind != "env"


def smallest_change(
    calls: Sequence[OpCall], target: Target, lists: OpLists, accepts: Callable[[Verdict], bool] = runs
) -> VersionChange | None:
    """Return the first newer target that accepts every call; None if there is none.

    A newer macOS alone comes before a newer torch, and that before both.  The calls are those of the target that they
    were captured for: a release that dispatches to others is not captured again.

    Raises:
        OpListError: the lists are damaged.
    """
    # A program's own mistake is the same in every release.
    if not calls or any(call.refusal is not None for call in calls):
        return None
    for candidate in _newer(target, lists):
        if all(map(accepts, judge_all(calls, candidate, lists))):
            return change_between(target, candidate)
    return None


def change_between(current: Target, target: Target) -> VersionChange:
    """Return the versions that differ between two targets."""
    return VersionChange(
        torch=str(target.torch) if target.torch != current.torch else "",
        macos=str(target.macos) if target.macos != current.macos else "",
    )


def _newer(target: Target, lists: OpLists) -> Iterator[Target]:
    systems = [Version(major) for major in MACOS_MAJORS if Version(major) > target.macos]
    minimum = {release.version: release.minimum for release in lists.releases}
    lines = sorted(line for line in minimum if line > target.torch)
    pairs = [(target.torch, system) for system in systems]
    pairs += [(line, target.macos) for line in lines if minimum[line] <= target.macos]
    pairs += [(line, system) for line in lines for system in systems if system >= minimum[line]]
    for line, system in pairs:
        yield msgspec.structs.replace(target, torch=line, macos=system)
