"""Findings that several models or targets have in common, as one: who has them, and whether they count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from opcheck.model.records import Report
from opcheck.model.visible import visible
from opcheck.project.gate.records import Cell, GateReport
from opcheck.render.where import Hit, hits

#: What a finding is to the gate, the first that holds somewhere: it fails, is known, is ignored, is allowed.
STATES = ("new", "known", "ignored", "allowed")


class Merged(NamedTuple):
    """One finding at one place, wherever it was found."""

    hit: Hit
    #: the first report that has it in this state
    report: Report
    state: str
    models: tuple[str, ...]
    targets: tuple[str, ...]


def merged(gate: GateReport) -> tuple[Merged, ...]:
    """All findings by their fingerprints; what fails comes first, then in the order of the cells."""
    found: dict[str, list[tuple[Hit, Report, str, Cell]]] = {}
    for cell in gate.cells:
        for hit, report in _hits(cell):
            found.setdefault(hit.fingerprint, []).append((hit, report, state(hit, cell), cell))
    together = [_one(entries) for entries in found.values()]
    return tuple(sorted(together, key=lambda one: STATES.index(one.state)))


def _hits(cell: Cell) -> Iterator[tuple[Hit, Report]]:
    if cell.report is not None:
        shown = visible(cell.report)
        for hit, raw in zip(hits(shown), hits(cell.report), strict=True):
            # What a text is shown as is no part of what it is known by.
            yield hit._replace(fingerprint=raw.fingerprint), shown


def state(hit: Hit, cell: Cell) -> str:
    """One of STATES: what a finding is to the gate on one target."""
    if hit.fingerprint in cell.judgement.against:
        return "new"
    if hit.finding.ignored:
        return "ignored"
    return "known" if hit.fingerprint in cell.known else "allowed"


def _one(entries: list[tuple[Hit, Report, str, Cell]]) -> Merged:
    state = min((state for _, _, state, _ in entries), key=STATES.index)
    # Where it fails is where to look; the other places are no part of that.
    of_state = [entry for entry in entries if entry[2] == state]
    hit, report, _, _ = of_state[0]
    cells = [cell for _, _, _, cell in of_state]
    return Merged(
        hit,
        report,
        state,
        tuple(dict.fromkeys(cell.model for cell in cells)),
        tuple(dict.fromkeys(cell.target for cell in cells)),
    )


def on(one: Merged, gate: GateReport) -> str:
    """``net, encoder; on torch 2.9, macOS 15.0 and 3 more targets``."""
    first, *more = one.targets
    if not more:
        where = first
    elif len(one.targets) == len(gate.targets):
        where = f"all {len(gate.targets)} targets"
    else:
        where = f"{first} and {len(more)} more target{'s' if len(more) > 1 else ''}"
    return f"{', '.join(one.models)}; on {where}"


def broken(gate: GateReport) -> Iterator[tuple[Cell, int]]:
    """The first cell of each model without a report, and how many it has."""
    seen: dict[str, list[Cell]] = {}
    for cell in gate.cells:
        if cell.failed is not None:
            seen.setdefault(cell.model, []).append(cell)
    yield from ((cells[0], len(cells)) for cells in seen.values())
