"""The report of an audit as one self-contained HTML page: no network, its data inside.

The page can be read without JavaScript; its script draws the graph and filters the operators.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from opcheck.common.picking import pick
from opcheck.common.text import filesize, plural
from opcheck.judge.judge import outcome
from opcheck.lookup.matrix import STATES, short
from opcheck.model.records import CallGroup, Evidence, GraphCall, Report, SourceLocation, Verdict
from opcheck.render import html, memory_page, precision, report, summary, timing_page
from opcheck.render.document import Block, FindingEntry, Heading
from opcheck.render.wording import LABELS

#: The size of the drawing of the copies: up is copied to the CPU, down is copied back.
_WIDTH, _MIDDLE, _TALLEST = 1000.0, 64.0, 58.0
_LISTED = 12


def render(record: Report) -> str:
    """Write the page.

    Raises:
        OSError: A template is not in the package.
    """
    transfers = summary.transfers(record)
    sections = {
        "statements": list(report.statements(record)),
        "memory": list(memory_page.blocks(record.memory)) if record.memory else [],
        "time": list(timing_page.blocks(record.time)) if record.time else [],
        **{f"precision-{run.dtype}": list(precision.blocks(run)) for run in record.precision},
    }
    sections = {name: blocks for name, blocks in sections.items() if blocks}
    return html.with_script(
        "report",
        _data(record),
        report=record,
        title=report.title(record),
        shares=[(s, LABELS[s], record.totals[s]) for s in STATES if record.totals[s]],
        navigation=[*_FIRST, *map(_link, sections.items()), *_LAST],
        remedies=list(_remedies(record)),
        facts=summary.facts(record, short=False),
        graph=_graph(record),
        transfers=f"{transfers[:1].upper()}{transfers[1:]}.",
        timeline=_timeline(record),
        # The page shows their heading and first line above the drawing.
        regions=list(report.transfers(record))[2:],
        operators=list(map(_operator, record.groups)),
        sections=sections,
        evidence=report.evidence(record),
    )


#: The sections of every page, by their anchors: those before the ones that a report may lack, and those after.
_FIRST = [(name, name.capitalize()) for name in ("findings", "summary", "graph", "transfers", "operators")]
_LAST = (("evidence", "Evidence"), ("not-checked", "Not checked"))


def _link(section: tuple[str, list[Block]]) -> tuple[str, str]:
    """Return the anchor of a section and its title, without what only explains it."""
    name, blocks = section
    heading = blocks[0]
    assert isinstance(heading, Heading)
    return name, re.split(r" \(| beside ", heading.text)[0]


def _remedies(record: Report) -> Iterator[tuple[str, list[FindingEntry]]]:
    """Yield the findings by what mends them, a help text with its first finding alone."""
    seen: set[str] = set()
    for heading, members in report.group_by_remedy(record, notes=True):
        shown = []
        for finding, made in members:
            details = tuple(each for each in made.details if each[0] != "help" or finding.hint not in seen)
            seen.add(finding.hint)
            shown.append(replace(made, details=details))
        yield heading, shown


def _graph(record: Report) -> str:
    """Say what the script draws, or why there is nothing to draw."""
    if not record.graph and record.capture.mode == "run":
        return "The calls of a run are counted, not kept: there is no graph."
    if not record.graph:
        return "No call was captured: there is no graph."
    regions = [region.side for region in record.partition.regions]
    sides = ", ".join(f"{regions.count(side):,} {word}" for side, word in report.SIDES.items() if side in regions)
    return f"{plural(len(record.graph), 'call')} in {plural(len(regions), 'region')}: {sides}."


def _operator(group: CallGroup) -> dict[str, Any]:
    """Return what the row of a group opens to: the reason, its evidence, and the places."""
    verdict = group.verdict
    return {
        "group": group,
        "state": short(verdict),
        "label": outcome(verdict).label,
        "statements": _statements(verdict),
        "evidence": _evidence(verdict.evidence),
        "places": [report.place(entry) for entry in group.locations],
    }


def _statements(verdict: Verdict) -> list[str]:
    return [*verdict.limitations, *verdict.advisories]


def _evidence(entries: Iterable[Evidence]) -> list[str]:
    return [" ".join(filter(None, (entry.kind, entry.torch, entry.where, entry.detail))) for entry in entries]


def _timeline(record: Report) -> dict[str, Any] | None:
    """Draw the copies along the run, and list the largest; None: there are none."""
    copying = [(n, node) for n, node in enumerate(record.graph) if node.to_cpu or node.to_mps]
    if not copying:
        return None
    step = _WIDTH / len(record.graph)
    most = max(max(node.bytes_to_cpu, node.bytes_to_mps) for _, node in copying)
    sides = [outcome(record.groups[node.group].verdict).side for node in record.graph]
    bands, first = [], 0
    for side, run in groupby(sides):
        length = len(list(run))
        width = f"{max(length * step, 0.8):.2f}"
        bands.append({"x": f"{first * step:.2f}", "width": width, "side": side})
        first += length
    bars = [_bar(record, number, node, step, most) for number, node in copying]
    largest = sorted(bars, key=lambda bar: -(bar["node"].bytes_to_cpu + bar["node"].bytes_to_mps))
    return {"bands": bands, "bars": bars, "largest": largest[:_LISTED]}


def _bar(record: Report, number: int, node: GraphCall, step: float, most: int) -> dict[str, Any]:
    """Describe a call that copies, as it is drawn and listed."""
    group = record.groups[node.group]
    up, down = _height(node.bytes_to_cpu, most), _height(node.bytes_to_mps, most)
    width = max(step * 0.8, 2.0)
    return {
        "call": number,
        "label": f"call {number}, {group.op}: {filesize(node.bytes_to_cpu)} to the CPU, "
        f"{filesize(node.bytes_to_mps)} back",
        "x": f"{min(number * step, _WIDTH - width):.2f}",
        "top": f"{_MIDDLE - 4 - up:.1f}",
        "width": f"{width:.2f}",
        "up": f"{up:.1f}",
        "down": f"{down:.1f}",
        "op": group.op,
        "place": summary.place(group.locations[node.place]),
        "node": node,
    }


def _height(number: int, most: int) -> float:
    """Scale by order of magnitude: a copy of bytes stays visible next to gigabytes."""
    return _TALLEST * math.log2(number + 1) / math.log2(most + 1) if number else 0.0


def _data(record: Report) -> dict[str, Any]:
    """Return the graph as the script reads it: groups with their lines, and what each call reads.

    A text that occurs often is written once, and referenced by its number.
    """
    modules, specs = html.Pool(), html.Pool()
    rows = [
        [
            node.group,
            node.place,
            modules(node.module),
            node.region,
            list(node.sources),
            [specs(text) for text in node.inputs],
            [specs(text) for text in node.outputs],
            *([node.to_cpu, node.bytes_to_cpu, node.to_mps, node.bytes_to_mps] if node.to_cpu or node.to_mps else []),
        ]
        for node in record.graph
    ]
    # A report without the calls needs no texts for them.
    return {
        "groups": [_group(group) for group in record.groups] if rows else [],
        "modules": list(modules.numbers),
        "specs": list(specs.numbers),
        "calls": rows,
    }


def _group(group: CallGroup) -> dict[str, Any]:
    verdict = group.verdict
    return {
        "op": group.op,
        **pick(outcome(verdict), "side", "label"),
        **pick(verdict, "because", "prints", "confidence"),
        "evidence": _evidence(verdict.evidence),
        "statements": _statements(verdict),
        "places": [[*_source(entry.location), entry.phase] for entry in group.locations],
    }


def _source(where: SourceLocation | None) -> tuple[str, str, str]:
    return (str(where), where.function, where.text.strip()) if where else ("", "", "")
