"""The run for people: a table of models and targets, then what fails, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from opcheck.common.text import plural
from opcheck.model.visible import one_line
from opcheck.project.gate.policy import COULD_NOT_TELL, FINDINGS, PASSED
from opcheck.project.gate.records import Cell, GateReport
from opcheck.render import summary
from opcheck.render.answers.document import (
    WIDTH,
    Block,
    Bullets,
    Heading,
    Lines,
    Table,
    as_markdown,
    as_text,
)
from opcheck.render.gate_report.merged import Merged, broken, merged, on

_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK=1"
_CODES = {PASSED: "passed", FINDINGS: "FAILED", COULD_NOT_TELL: "could not tell"}
_HEADERS = ("model", "target", "what it does", "gate")
_SHORTEST = 12


def render(gate: GateReport, format_name: str = "text") -> str:
    """As text of at most 100 columns, or as Markdown."""
    document = tuple(_blocks(gate))
    return as_markdown(document) if format_name == "markdown" else as_text(document)


def summary_lines(gate: GateReport) -> Iterator[str]:
    """The outcome, and a line for each model and target."""
    yield outcome(gate)
    for cell in gate.cells:
        about = f"{one_line(cell.model)} on {cell.target}: {cell.headline}"
        why = "; ".join(cell.judgement.reasons)
        yield f"{_CODES[cell.judgement.code]}: {about}" + (f" ({one_line(why)})" if why else "")


def outcome(gate: GateReport) -> str:
    """``failed: 2 of 18 fail, 1 could not be told, 15 pass``."""
    counts = {code: sum(cell.judgement.code == code for cell in gate.cells) for code in _CODES}
    texts = [
        f"{counts[code]} {word}"
        for code, word in (
            (FINDINGS, "failed"),
            (COULD_NOT_TELL, "could not be told"),
            (PASSED, "passed"),
        )
        if counts[code]
    ]
    size = f"{plural(len(gate.models), 'model')} on {plural(len(gate.targets), 'target')}"
    left = f"; interrupted before {one_line(', '.join(gate.left))}" if gate.left else ""
    return f"{_CODES[gate.code]}: {size}: {', '.join(texts) or 'nothing was audited'}{left}"


def _blocks(gate: GateReport) -> Iterator[Block]:
    yield Heading(outcome(gate), 1)
    if gate.cells:
        yield _table(gate)
    hits = merged(gate)
    by_state = {
        state: tuple(entries) for state, entries in groupby(hits, key=lambda one: one.state)
    }
    new = by_state.get("new", ())
    if new:
        yield Heading("New" if gate.baseline else "What fails")
        yield from _findings(new, gate)
    reasons = tuple(_reasons(gate))
    if reasons:
        yield Heading("Why")
        yield Bullets(reasons)
    for cell, count in broken(gate):
        yield Heading(f"Could not tell: {one_line(cell.model)}, {plural(count, 'target')}")
        yield Lines(tuple(_three_lines(cell)))
    yield from _rest(gate, by_state)
    if gate.notes:
        yield Heading("Notes")
        yield Bullets(gate.notes)
    yield Heading("Not checked")
    yield Bullets(("nothing was observed on a Mac; each report says what else was not (-f json)",))
    yield Heading("Next")
    yield Lines((_next(gate, new),))


def _table(gate: GateReport) -> Table:
    rows = [
        (
            one_line(cell.model),
            cell.target.replace(_VARIABLE, "fallback"),
            cell.headline.replace(_VARIABLE, "the fallback variable"),
            _verdict(cell, "new finding" if gate.baseline else "finding"),
        )
        for cell in gate.cells
    ]
    taken = sum(max(len(row[column]) for row in (_HEADERS, *rows)) + 2 for column in (1, 2, 3))
    width = max(_SHORTEST, WIDTH - taken - 2)
    shown, before = [], ""
    for name, *others in rows:
        short = name if len(name) <= width else f"{name[: width - 3]}..."
        shown.append((short if name != before else "", *others))
        before = name
    return Table(_HEADERS, tuple(shown))


def _verdict(cell: Cell, noun: str) -> str:
    against = len(cell.judgement.against)
    if cell.judgement.code == FINDINGS:
        return f"FAILED, {plural(against, noun)}" if against else "FAILED"
    return _CODES[cell.judgement.code] + (f", {len(cell.known)} known" if cell.known else "")


def _findings(found: Sequence[Merged], gate: GateReport) -> Iterator[Block]:
    for hit in found:
        finding, place = hit.hit.finding, hit.hit.place
        lines = [
            f"{finding.severity} {finding.rule} {one_line(finding.message)}",
            f"for {one_line(on(hit, gate))}",
        ]
        if place is not None:
            text = place.location.text.strip() if place.location else ""
            lines.append(
                f"at {one_line(summary.place(place))}" + (f": {one_line(text)}" if text else "")
            )
        for name, words in (("help", finding.hint), ("try", finding.remedy)):
            if words:
                lines.append(f"{name}: {one_line(words)}")
        yield Lines(tuple(lines))


def _reasons(gate: GateReport) -> Iterator[str]:
    """Why models do not pass, each reason once with its targets."""
    told: dict[tuple[str, str], list[str]] = {}
    for cell in gate.cells:
        for reason in cell.judgement.reasons if cell.failed is None else ():
            told.setdefault((cell.model, reason), []).append(cell.target)
    for (model, reason), targets in told.items():
        where = targets[0] if len(targets) == 1 else f"{targets[0]} and {len(targets) - 1} more"
        yield one_line(f"{model}: {reason} ({where})")


def _three_lines(cell: Cell) -> Iterator[str]:
    if cell.failed is not None:
        yield one_line(cell.failed.message)
        if cell.failed.context:
            yield f"in: {one_line(cell.failed.context)}"
        if cell.failed.hint:
            yield f"help: {one_line(cell.failed.hint)}"


def _rest(gate: GateReport, by_state: dict[str, tuple[Merged, ...]]) -> Iterator[Block]:
    fixed = {(cell.model, entry.fingerprint): entry for cell in gate.cells for entry in cell.fixed}
    if fixed:
        yield Heading("Fixed")
        yield Bullets(
            tuple(
                one_line(f"{model}: {entry.rule} {entry.op} at {entry.where}: {entry.line}")
                for (model, _), entry in fixed.items()
            )
        )
    ignored = by_state.get("ignored", ())
    if ignored:
        yield Heading("Ignored")
        yield Bullets(
            tuple(f"{_brief(hit)} ({one_line(hit.hit.finding.ignored)})" for hit in ignored)
        )
    known = by_state.get("known", ())
    if known:
        yield Heading("In the baseline")
        yield Bullets(tuple(map(_brief, known)))


def _brief(one: Merged) -> str:
    place = one.hit.place
    where = f" at {place.location}" if place and place.location else ""
    return one_line(f"{', '.join(one.models)}: {one.hit.finding.rule} {one.hit.finding.op}{where}")


def _next(gate: GateReport, new: Sequence[Merged]) -> str:
    if new:
        return f"opcheck explain {new[0].hit.finding.rule}"
    if any(cell.fixed for cell in gate.cells):
        return "opcheck gate --update-baseline: what is fixed need not stay known"
    failed = next((cell for cell, _ in broken(gate)), None)
    if failed is not None:
        return "opcheck audit -v on the model that could not be told shows what it prints"
    return "opcheck upgrade MODEL says what a newer torch or macOS would change"
