"""The coverage of all releases as one HTML page: no network, its data inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup

from opcheck.common.tool import VERSION
from opcheck.lookup.matrix import STATES
from opcheck.lookup.plain_call import COMMON_DTYPES
from opcheck.render import html
from opcheck.render.matrix.plot import plot
from opcheck.render.matrix.tables import LABELS

if TYPE_CHECKING:
    from opcheck.lookup.coverage import Coverage, Run


def render(found: Coverage, torch: str) -> str:
    """The page, opened at that release.

    Raises:
        OSError: the template is not in the package.
    """
    return html.with_script(
        "matrix",
        _data(found, torch),
        plot=Markup(plot(found.counts, found.macos)),  # noqa: S704  (a drawing of ours)
        macos=found.macos,
        digest=found.digest,
        version=VERSION,
    )


def _data(found: Coverage, torch: str) -> dict[str, Any]:
    lines = [release.line for release in found.releases]
    reasons, systems, states = html.Pool(), html.Pool(), html.Pool()
    notes = {name: number for number, name in enumerate(found.notes)}

    def run(one: Run) -> list[Any]:
        """[release, states, default dtype, reason, systems, notes]; [release]: it is removed."""
        place = lines.index(one.torch)
        if not one.exists:
            return [place]
        spans = ", ".join(f"{macos}+ {LABELS[state]}" for macos, state in one.systems.items())
        row: list[Any] = [
            place,
            states("".join(map(str, one.states))),
            one.default,
            reasons(one.because),
            systems(spans),
        ]
        return [*row, [notes[name] for name in one.notes]] if one.notes else row

    operators = [[name, *map(run, runs)] for name, runs in found.operators.items()]
    return {
        "torch": torch,
        "macos": found.macos,
        "releases": [
            {"line": r.line, "torch": r.torch, "built": r.built.isoformat(), "min": r.minimum_macos}
            for r in found.releases
        ],
        "states": [[state, LABELS[state]] for state in STATES],
        "dtypes": list(COMMON_DTYPES),
        "sets": list(states.numbers),
        "reasons": list(reasons.numbers),
        "systems": list(systems.numbers),
        "notes": [
            [name, *msgspec.to_builtins(about).values()] for name, about in found.notes.items()
        ],
        "ops": operators,
    }
