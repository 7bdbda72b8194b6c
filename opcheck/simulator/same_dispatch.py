"""Decide, without a run, whether another target would have run exactly the calls of a recorded run.

The target decides the way of each overload that is called (``registered_way``).  Below Python, the
dispatcher decides for composites that only some releases have a kernel or a branch for; these
record their calls, too.  A run without calls that differ between two targets is the same on both.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from opcheck.common.versions import Version
from opcheck.data.registrations import load
from opcheck.simulator import python_visible_target
from opcheck.simulator.operators import BRANCHES
from opcheck.simulator.operators.operator import composite, overload_named
from opcheck.simulator.routes import KERNEL_VALUES, is_implicit, registered_way

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opcheck.common.versions import Target
    from opcheck.simulator.dispatcher import Simulator


def same_dispatch(simulator: Simulator, target: Target, counterpart: Target) -> bool:
    """Return whether the run that ``simulator`` recorded on ``target`` would be the same on ``counterpart``.

    Beside this the trace names its target, and what of it the installed torch lacks (``absent``).

    Raises:
        OpListError: the lists hold no such torch release.
    """
    if not simulator.context.ask.answered_alike(counterpart) or not python_visible_target.fits(
        counterpart
    ):
        return False
    implicit_by_name = {route.name: route.implicit for route in simulator.routes}
    implicit_by_name.update(dict.fromkeys(simulator.passed, True))
    return _ways(implicit_by_name, target) == _ways(implicit_by_name, counterpart)


def note_branches(
    registrations: Mapping[str, str], branches: Mapping[str, Callable[..., Any]], passed: set[str]
) -> dict[str, Callable[..., Any]]:
    """Return the target's branches, and the composites for which another release has a kernel or a branch.

    Each of them notes its calls.

    Args:
        registrations: the target's value of every overload.
        branches: the branches of the target.
        passed: takes the names of what is called.
    """
    functions = {name: _noting(name, branch, passed) for name, branch in branches.items()}
    for name in _contested_composites():
        if name not in branches and registrations.get(name) not in KERNEL_VALUES:
            body = functools.partial(composite, overload_named(name))
            functions[name] = _noting(name, body, passed)
    return functions


def _noting(name: str, function: Callable[..., Any], passed: set[str]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        passed.add(name)
        return function(*args, **kwargs)

    return noted


@functools.cache
def _contested_composites() -> tuple[str, ...]:
    """Return composites of the installed torch that have a kernel, or a branch, in some releases only."""
    lists = load()
    columns = [lists.operators(release.line) for release in lists.releases]
    names = {name for column in columns for name, value in column.items() if value in KERNEL_VALUES}
    names = {name for name in names if not all(c.get(name) in KERNEL_VALUES for c in columns)}
    names |= {
        name
        for name, branch in BRANCHES.items()
        if not all(Version.parse(release.line) in branch.releases for release in lists.releases)
    }
    return tuple(sorted(name for name in names if is_implicit(name)))


def _ways(implicit_by_name: Mapping[str, bool], target: Target) -> list[str]:
    registrations = load().operators(str(target.torch))
    branches = {name for name, branch in BRANCHES.items() if target.torch in branch.releases}
    return [
        registered_way(
            name,
            implicit=implicit,
            registrations=registrations,
            branches=branches,
        )
        for name, implicit in implicit_by_name.items()
    ]
