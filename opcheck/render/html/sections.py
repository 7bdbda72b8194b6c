"""The parts of the page that are words and tables."""

from __future__ import annotations

from opcheck.common.text import plural
from opcheck.judge.judge import OUTCOMES, outcome
from opcheck.model.records import CallGroup, Finding, GroupLocation, Report
from opcheck.render import memory, precision, summary
from opcheck.render.html.markup import Markup, joined, tag
from opcheck.render.memory import Rows

#: Places of a finding that are seen at once.
_SHOWN = 4

#: What a region of each side is called.
_SIDES = {"mps": "native", "cpu": "on the CPU", "unknown": "unknown", "raises": "raising"}


def header(report: Report) -> Markup:
    """The answer first, then of what, on what, and how many calls of each sort."""
    total = report.totals["calls"]
    counts = [
        (f"{status}_{kind}" if kind else status, row) for (status, kind), row in OUTCOMES.items()
    ]
    present = [(name, row, report.totals[name]) for name, row in counts if report.totals[name]]
    return joined(
        tag("p", report.headline, class_="headline", data_headline=report.headline),
        tag("h1", report.model),
        tag("p", f"On {summary.target(report)}. {summary.totals(report)}.", class_="about"),
        tag(
            "div",
            *(
                tag("span", class_=f"share {name}", style=f"flex-grow:{count}", title=row.label)
                for name, row, count in present
            ),
            class_="shares",
            aria_hidden="true",
        )
        if total
        else "",
        tag(
            "ul",
            *(
                tag("li", tag("b", f"{count:,}"), f" {row.label}", class_=f"dot {name}")
                for name, row, count in present
            ),
            class_="legend",
        ),
        tag("p", f"Next: {summary.next_command(report)}", class_="next"),
    )


def findings(report: Report) -> Markup:
    """A card a finding, the worst first."""
    if not report.findings:
        return tag("p", "No findings.", class_="soft")
    first = _first_calls(report)
    return joined(*(_finding(finding, first) for finding in report.findings))


def _first_calls(report: Report) -> dict[tuple[str, GroupLocation], int]:
    """By operator and place, the first call of the graph."""
    found: dict[tuple[str, GroupLocation], int] = {}
    for number, call in enumerate(report.graph):
        group = report.groups[call.group]
        found.setdefault((group.op, group.locations[call.place]), number)
    return found


def _finding(finding: Finding, first: dict[tuple[str, GroupLocation], int]) -> Markup:
    places = [_place(place, first.get((finding.op, place))) for place in finding.locations]
    rest = places[_SHOWN:]
    return tag(
        "article",
        tag(
            "h3",
            tag("span", finding.severity, class_="badge"),
            tag("span", finding.rule, class_="rule"),
            f" {finding.message}",
        ),
        tag("ul", *places[:_SHOWN], class_="places") if places else "",
        tag(
            "details",
            tag("summary", f"and {plural(len(rest), 'more place')}"),
            tag("ul", *rest, class_="places"),
        )
        if rest
        else "",
        _labelled("ignored", finding.ignored),
        _labelled("help", finding.hint),
        _labelled("try", tag("code", finding.remedy) if finding.remedy else ""),
        _labelled("prints", tag("samp", finding.prints) if finding.prints else ""),
        class_=f"finding {finding.severity}",
    )


def _labelled(name: str, text: str) -> Markup:
    return tag("p", tag("b", name), " ", text, class_="labelled") if text else Markup()


def _place(place: GroupLocation, call: int | None = None) -> Markup:
    text = place.location.text.strip() if place.location else ""
    return tag(
        "li",
        tag("span", summary.place(place), class_="where"),
        tag("a", "in the graph", href=f"#call={call}", class_="jump") if call is not None else "",
        tag("pre", tag("code", text)) if text else "",
    )


def graph(report: Report) -> Markup:
    """What the script draws into, or why there is nothing to draw."""
    if not report.graph:
        why = (
            "The calls of a run are counted, not kept: there is no graph."
            if report.capture["mode"] == "run"
            else "No call was captured: there is no graph."
        )
        return tag("p", why, class_="soft")
    regions = [region.side for region in report.partition.regions]
    sides = ", ".join(
        f"{regions.count(side):,} {word}" for side, word in _SIDES.items() if side in regions
    )
    said = f"{plural(len(report.graph), 'call')} in {plural(len(regions), 'region')}: {sides}."
    return tag("p", said, class_="soft")


def operators(report: Report) -> Markup:
    """One line a group, which opens to why, by what evidence, and where."""
    return joined(*(_operator(group) for group in report.groups))


def _operator(group: CallGroup) -> Markup:
    verdict, row = group.verdict, outcome(group.verdict)
    name = f"{verdict.status}_{verdict.kind}" if verdict.kind else verdict.status
    texts = [*verdict.limitations, *verdict.advisories]
    return tag(
        "details",
        tag(
            "summary",
            tag("span", group.op, class_="op"),
            tag("span", row.label, class_=f"dot {name}"),
            tag("span", f"{group.count:,}", class_="count"),
            tag("span", ", ".join(group.dtypes), class_="dtypes"),
        ),
        tag(
            "div",
            tag("p", f"{verdict.because} (confidence: {verdict.confidence})"),
            _labelled("prints", tag("samp", verdict.prints) if verdict.prints else ""),
            _labelled("statements", ", ".join(texts)),
            _labelled("evidence", ""),
            tag(
                "ul",
                *(
                    tag("li", " ".join(filter(None, (one.kind, one.torch, one.where, one.detail))))
                    for one in verdict.evidence
                ),
                class_="small",
            ),
            tag("ul", *(_place(place) for place in group.locations), class_="places"),
        ),
        class_="operator",
        data_status=name,
        data_calls=group.count,
        data_name=group.op,
    )


def statements(report: Report) -> Markup:
    """The limitations and advisories that operators meet, or may meet."""
    known = summary.statements(report)
    items = [tag("li", tag("b", name), f" {line}") for name, line in known]
    return (
        _section("statements", "Limitations and advisories", tag("ul", *items))
        if items
        else Markup()
    )


def memory_section(report: Report) -> Markup:
    """The estimate, where there is one."""
    estimate = report.memory
    if estimate is None:
        return Markup()
    who, prints = memory.printed(estimate.macs)
    return _section(
        "memory",
        memory.TITLE,
        *map(
            _table,
            (
                memory.peaks(estimate),
                memory.holders(estimate, len(estimate.holders)),
                memory.macs(estimate),
            ),
        ),
        tag("p", f"{who}: ", tag("samp", prints)) if prints else "",
        tag("ul", *(tag("li", line) for line in memory.sentences(estimate))),
    )


def precision_section(report: Report) -> Markup:
    """Each run beside float64."""
    return joined(
        *(
            _section(
                f"precision-{run.dtype}",
                precision.title(run),
                tag("p", f"{precision.verdict(run)}."),
                *(
                    _table(rows)
                    for rows in (precision.lines(run), precision.modules(run))
                    if rows.rows
                ),
                tag("ul", *(tag("li", line) for line in precision.sentences(run))),
            )
            for run in report.precision
        )
    )


def evidence(report: Report) -> Markup:
    """What it was captured with and judged by, and what nobody checked."""
    return joined(
        tag("p", f"Captured: {summary.capture(report)}."),
        tag("p", f"Judged by: {summary.evidence(report)}."),
        tag("h3", "Not checked"),
        tag("ul", *(tag("li", line) for line in report.not_checked)),
        tag("p", report.tool, class_="soft"),
    )


def _section(name: str, title: str, *children: str) -> Markup:
    return tag("section", tag("h2", title), *children, id=name)


def _table(rows: Rows) -> Markup:
    def cells(kind: str, row: tuple[str, ...]) -> Markup:
        made = (
            tag(kind, cell, class_=None if side == "left" else "right")
            for cell, side in zip(row, rows.aligned, strict=True)
        )
        return tag("tr", *made)

    return tag(
        "div",
        tag(
            "table",
            tag("thead", cells("th", rows.headers)),
            tag("tbody", *(cells("td", row) for row in rows.rows)),
        ),
        class_="scroll",
    )
