"""The copies of the fallbacks along the run, drawn; the largest as a table."""

from __future__ import annotations

import math
from itertools import groupby

from opcheck.common.text import filesize
from opcheck.judge.judge import outcome
from opcheck.model.records import GraphCall, Report
from opcheck.render import summary
from opcheck.render.html.markup import Markup, joined, tag

_WIDTH, _MIDDLE, _TALLEST = 1000.0, 64.0, 58.0
_LISTED = 12


def timeline(report: Report) -> Markup:
    """What is copied in all; where the calls are known, when, and by which call."""
    words = summary.transfers(report)
    markup = tag("p", f"{words[:1].upper()}{words[1:]}.", class_="soft")
    copying = [
        (number, call) for number, call in enumerate(report.graph) if call.to_cpu or call.to_mps
    ]
    if not copying:
        return markup
    return joined(markup, _drawing(report, copying), _table(report, copying))


def _drawing(report: Report, copying: list[tuple[int, GraphCall]]) -> Markup:
    """Calls from left to right: up is copied to the CPU, down is copied back, taller is more."""
    step = _WIDTH / len(report.graph)
    most = max(max(call.bytes_to_cpu, call.bytes_to_mps) for _, call in copying)
    return tag(
        "div",
        tag("span", "to the CPU", class_="small"),
        tag(
            "svg",
            *_sides(report, step),
            *(_bars(report, number, call, step, most) for number, call in copying),
            viewBox=f"0 0 {_WIDTH:.0f} {2 * _MIDDLE:.0f}",
            role="img",
            aria_label="Copies along the run; the table below has the largest",
            preserveAspectRatio="none",
        ),
        tag("span", "back to MPS", class_="small"),
        class_="timeline",
    )


def _sides(report: Report, step: float) -> list[Markup]:
    """The band in the middle: where each stretch of calls runs."""
    sides = [outcome(report.groups[call.group].verdict).side for call in report.graph]
    bands, first = [], 0
    for side, run in groupby(sides):
        length = sum(1 for _ in run)
        bands.append(
            tag(
                "rect",
                x=f"{first * step:.2f}",
                y=f"{_MIDDLE - 3:.0f}",
                width=f"{max(length * step, 0.8):.2f}",
                height=6,
                class_=f"side {side}",
            )
        )
        first += length
    return bands


def _bars(report: Report, number: int, call: GraphCall, step: float, most: int) -> Markup:
    up, down = _height(call.bytes_to_cpu, most), _height(call.bytes_to_mps, most)
    width = max(step * 0.8, 2.0)
    left = min(number * step, _WIDTH - width)
    said = (
        f"call {number}, {report.groups[call.group].op}: {filesize(call.bytes_to_cpu)} to the CPU, "
        f"{filesize(call.bytes_to_mps)} back"
    )
    return tag(
        "a",
        tag("title", said),
        tag(
            "rect",
            x=f"{left:.2f}",
            y=f"{_MIDDLE - 4 - up:.1f}",
            width=f"{width:.2f}",
            height=f"{up:.1f}",
            class_="up",
        ),
        tag(
            "rect",
            x=f"{left:.2f}",
            y=f"{_MIDDLE + 4:.0f}",
            width=f"{width:.2f}",
            height=f"{down:.1f}",
            class_="down",
        ),
        href=f"#call={number}",
        aria_label=said,
    )


def _height(number: int, most: int) -> float:
    """By order of magnitude: a copy of bytes stays visible beside one of gigabytes."""
    return _TALLEST * math.log2(number + 1) / math.log2(most + 1) if number else 0.0


def _table(report: Report, copying: list[tuple[int, GraphCall]]) -> Markup:
    largest = sorted(copying, key=lambda entry: -(entry[1].bytes_to_cpu + entry[1].bytes_to_mps))
    rows = []
    for number, call in largest[:_LISTED]:
        group = report.groups[call.group]
        cells = (
            tag("td", tag("a", str(number), href=f"#call={number}")),
            tag("td", group.op),
            tag("td", summary.place(group.locations[call.place])),
            tag("td", f"{filesize(call.bytes_to_cpu)} ({call.to_cpu:,})", class_="right"),
            tag("td", f"{filesize(call.bytes_to_mps)} ({call.to_mps:,})", class_="right"),
        )
        rows.append(tag("tr", *cells))
    heads = (
        tag("th", "call"),
        tag("th", "operator"),
        tag("th", "line"),
        tag("th", "to the CPU (copies)", class_="right"),
        tag("th", "back (copies)", class_="right"),
    )
    more = len(copying) - len(rows)
    return joined(
        tag(
            "div",
            tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)),
            class_="scroll",
        ),
        tag("p", f"The largest {len(rows)} of {len(copying):,} calls that copy.", class_="soft")
        if more
        else "",
    )
