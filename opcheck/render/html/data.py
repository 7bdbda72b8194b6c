"""The calls as the page's script reads them: texts that occur often stand once, and are named by number."""

from __future__ import annotations

from typing import Any

from opcheck.judge.judge import outcome
from opcheck.model.records import CallGroup, GroupLocation, Report


class _Pool:
    """Texts by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def calls(report: Report) -> dict[str, Any]:
    """The graph: groups with their lines, and each call with the calls that it reads from."""
    modules, specs = _Pool(), _Pool()
    rows = [
        [
            call.group,
            call.place,
            modules(call.module),
            call.region,
            list(call.sources),
            [specs(text) for text in call.inputs],
            [specs(text) for text in call.outputs],
            *(
                [call.to_cpu, call.bytes_to_cpu, call.to_mps, call.bytes_to_mps]
                if call.to_cpu or call.to_mps
                else []
            ),
        ]
        for call in report.graph
    ]
    # A report without the calls needs no texts for them.
    return {
        "groups": [_group(group) for group in report.groups] if rows else [],
        "modules": list(modules.numbers),
        "specs": list(specs.numbers),
        "calls": rows,
    }


def _group(group: CallGroup) -> dict[str, Any]:
    verdict = group.verdict
    row = outcome(verdict)
    return {
        "op": group.op,
        "side": row.side,
        "label": row.label,
        "because": verdict.because,
        "prints": verdict.prints,
        "confidence": verdict.confidence,
        "evidence": [
            " ".join(filter(None, (entry.kind, entry.torch, entry.where, entry.detail)))
            for entry in verdict.evidence
        ],
        "statements": [*verdict.limitations, *verdict.advisories],
        "places": [_place(place) for place in group.locations],
    }


def _place(place: GroupLocation) -> list[str]:
    where = place.location
    return [
        str(where or ""),
        where.function if where else "",
        where.text.strip() if where else "",
        place.phase,
    ]
