"""The coverage of all releases as one HTML page: no network, its data inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from opcheck.common.tool import VERSION
from opcheck.lookup.matrix import STATES
from opcheck.lookup.plain_call import COMMON_DTYPES
from opcheck.render import html
from opcheck.render.coverage_plot import plot
from opcheck.render.wording import LABELS

if TYPE_CHECKING:
    from opcheck.lookup.coverage import Coverage, Run


def render(coverage: Coverage, torch: str) -> str:
    """Write the page, opened at that release.

    Raises:
        OSError: the template is not in the package.
    """
    return html.with_script(
        "matrix",
        _data(coverage, torch),
        plot=plot(coverage.counts, coverage.macos),
        macos=coverage.macos,
        digest=coverage.digest,
        version=VERSION,
    )


def _data(coverage: Coverage, torch: str) -> dict[str, Any]:
    lines = [release.line for release in coverage.releases]
    reasons, systems, states = html.Pool(), html.Pool(), html.Pool()
    notes = {name: number for number, name in enumerate(coverage.notes)}

    def run(entry: Run) -> list[Any]:
        """Return [release, states, default dtype, reason, systems, notes]; [release] where the overload is removed."""
        place = lines.index(entry.torch)
        if not entry.exists:
            return [place]
        spans = ", ".join(f"{macos}+ {LABELS[state]}" for macos, state in entry.systems.items())
        row: list[Any] = [
            place,
            states("".join(map(str, entry.states))),
            entry.default,
            reasons(entry.because),
            systems(spans),
        ]
        return [*row, [notes[name] for name in entry.notes]] if entry.notes else row

    operators = [[name, *map(run, runs)] for name, runs in coverage.operators.items()]
    return {
        "torch": torch,
        "macos": coverage.macos,
        "releases": [
            {"line": r.line, "torch": r.torch, "built": r.built.isoformat(), "min": r.minimum_macos}
            for r in coverage.releases
        ],
        "states": [[state, LABELS[state]] for state in STATES],
        "dtypes": list(COMMON_DTYPES),
        "sets": list(states.numbers),
        "reasons": list(reasons.numbers),
        "systems": list(systems.numbers),
        "notes": [
            [name, *msgspec.to_builtins(about).values()] for name, about in coverage.notes.items()
        ],
        "ops": operators,
        "aliases": dict(coverage.aliases),
    }
