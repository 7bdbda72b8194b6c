"""The run of a gate as a document, as data, and its findings in the formats of CI services."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.sanitize import one_line
from opcheck.common.text import and_more, plural, shorten
from opcheck.features.gate.gate_records import Failed, GateCell, GateReport
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED
from opcheck.model.saved import as_content, to_plain
from opcheck.render import findings, summary
from opcheck.render.document import Block, Bullets, Heading, Lines, Table, section
from opcheck.render.findings import FindingLog, JunitCase, Occurrence, Suite
from opcheck.render.report import entry, place
from opcheck.render.text import WIDTH

_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK=1"
_CODES = {PASSED: "passed", FINDINGS: "FAILED", COULD_NOT_TELL: "could not tell"}
_HEADERS = ("model", "target", "what it does", "gate")
_SHORTEST = 12


#: The states of a finding in the gate; the first that applies anywhere wins.
STATES = ("new", "known", "ignored", "allowed")

FINDING_SCHEMA = "opcheck-gate-finding/1"

#: The columns of CSV.
COLUMNS = ("model", "target", "headline", "code", "new", "known", "ignored", "fixed", "reasons")


def summary_lines(gate: GateReport) -> Iterator[str]:
    """Write the outcome, and a line for each model and target."""
    yield outcome(gate)
    for cell in gate.cells:
        about = f"{one_line(cell.model)} on {cell.target}: {_answer(cell)}"
        why = "; ".join(cell.reasons)
        yield f"{_CODES[cell.code]}: {about}" + (f" ({one_line(why)})" if why else "")


def outcome(gate: GateReport) -> str:
    """Return ``failed: 2 of 18 fail, 1 unknown, 15 pass``."""
    counts = {code: sum(cell.code == code for cell in gate.cells) for code in _CODES}
    words = {FINDINGS: "failed", COULD_NOT_TELL: "unknown", PASSED: "passed"}
    texts = [f"{counts[code]} {word}" for code, word in words.items() if counts[code]]
    size = f"{plural(len(gate.models), 'model')} on {plural(len(gate.targets), 'target')}"
    left = f"; interrupted before {one_line(', '.join(gate.left))}" if gate.left else ""
    return f"{_CODES[gate.exit_code]}: {size}: {', '.join(texts) or 'nothing was audited'}{left}"


def document(gate: GateReport) -> Iterator[Block]:
    """Make the page: a table of models and targets, then what fails, and why."""
    yield Heading(outcome(gate), 1)
    if gate.cells:
        yield _table(gate)
    by_state = {state: tuple(entries) for state, entries in groupby(occurrences(gate), key=lambda entry: entry.state)}
    new = by_state.get("new", ())
    entries = (entry(finding.finding, map(place, filter(None, (finding.place,))), finding.scope) for finding in new)
    yield from section("New" if gate.baseline else "What fails", *entries)
    yield from section("Why", Bullets(tuple(_reasons(gate))))
    for model, failed, count in _failures(gate):
        yield Heading(f"Unknown: {model}, {plural(count, 'target')}")
        named = (("in", failed.context), ("help", failed.hint))
        yield Lines((failed.message, *(f"{name}: {text}" for name, text in named if text)))
    fixed = {(cell.model, known.fingerprint): known for cell in gate.cells for known in cell.fixed}
    was = (f"{model}: {known.rule} {known.op} at {known.where}: {known.line}" for (model, _), known in fixed.items())
    yield from section("Fixed", Bullets(tuple(was)))
    ignored = (f"{_brief(each)} ({each.finding.ignored})" for each in by_state.get("ignored", ()))
    yield from section("Ignored", Bullets(tuple(ignored)))
    yield from section("In the baseline", Bullets(tuple(map(_brief, by_state.get("known", ())))))
    yield from section("Notes", Bullets(gate.notes))
    yield Heading("Not checked")
    yield Bullets(("nothing was observed on a Mac; each report lists the rest (-f json)",))
    yield from section("Next", Lines((_next(gate, new),)))


def _table(gate: GateReport) -> Table:
    rows = [
        (
            one_line(cell.model),
            cell.target.replace(_VARIABLE, "fallback"),
            _answer(cell).replace(_VARIABLE, "the fallback variable"),
            _verdict(cell, "new finding" if gate.baseline else "finding"),
        )
        for cell in gate.cells
    ]
    taken = sum(max(len(row[column]) for row in (_HEADERS, *rows)) + 2 for column in (1, 2, 3))
    width = max(_SHORTEST, WIDTH - taken - 2)
    shown, before = [], ""
    for name, *others in rows:
        shown.append((shorten(name, width) if name != before else "", *others))
        before = name
    return Table(_HEADERS, tuple(shown))


def _answer(cell: GateCell) -> str:
    return summary.answer(cell.report) if cell.report else cell.headline


def _verdict(cell: GateCell, noun: str) -> str:
    against = len(cell.against)
    if cell.code == FINDINGS:
        return f"FAILED, {plural(against, noun)}" if against else "FAILED"
    return _CODES[cell.code] + (f", {len(cell.known)} known" if cell.known else "")


def _reasons(gate: GateReport) -> Iterator[str]:
    """Say why models do not pass, each reason once with its targets."""
    judged = (cell for cell in gate.cells if cell.failed is None)
    by_reason = group_values(((cell.model, reason), cell.target) for cell in judged for reason in cell.reasons)
    for (model, reason), targets in by_reason.items():
        yield f"{model}: {reason} ({and_more(targets, 1)})"


def _brief(occurrence: Occurrence) -> str:
    finding, place = occurrence.finding, occurrence.place
    where = f" at {place.location}" if place and place.location else ""
    return f"{', '.join(occurrence.models)}: {finding.rule} {finding.op}{where}"


def _next(gate: GateReport, new: Sequence[Occurrence]) -> str:
    if new:
        return f"opcheck explain {new[0].finding.rule}"
    if any(cell.fixed for cell in gate.cells):
        return "opcheck gate --update-baseline removes the fixed findings from the baseline"
    if any(_failures(gate)):
        return "opcheck audit -v MODEL shows the output of the model without a result"
    return "opcheck upgrade MODEL shows what a newer torch or macOS would change"


def content(gate: GateReport) -> dict[str, Any]:
    """Return the content of JSON and YAML: the run with the whole report of each cell, all keys present."""
    without = tuple(replace(cell, report=None) for cell in gate.cells)
    whole: dict[str, Any] = to_plain(replace(gate, cells=without))
    for saved, cell in zip(whole["cells"], gate.cells, strict=True):
        saved["report"] = as_content(cell.report) if cell.report else None
    return whole


def finding_log(gate: GateReport) -> FindingLog:
    """List the findings of all models and targets at each of their places.

    GitHub takes at most twenty runs of a SARIF file and one result for each fingerprint, so that
    all models and targets are one run.
    """
    return FindingLog(
        **pick(gate, "tool", "exit_code", "baseline"),
        id="opcheck-gate/",
        occurrences=occurrences(gate),
        properties={"models": gate.models, "targets": gate.targets, "opLists": gate.op_lists, "notes": gate.notes},
        summary=tuple(summary_lines(gate)),
        failed=tuple((model, failed.message) for model, failed, _ in _failures(gate)),
        interrupted=bool(gate.left),
    )


def occurrences(gate: GateReport) -> tuple[Occurrence, ...]:
    """Merge the findings of all cells by their fingerprints: first what fails, then by the cells."""
    found = ((occurrence, cell) for cell in gate.cells for occurrence in _of_cell(cell))
    by_fingerprint = group_values((occurrence.fingerprint, (occurrence, cell)) for occurrence, cell in found)
    merged = [_merge(entries, len(gate.targets)) for entries in by_fingerprint.values()]
    return tuple(sorted(merged, key=lambda entry: STATES.index(entry.state)))


def _of_cell(cell: GateCell) -> Iterator[Occurrence]:
    if cell.report is not None:
        report = cell.report
        for entry in findings.occurrences(report.findings, report.model, report.groups):
            yield entry._replace(state=_state(entry, cell))


def _state(occurrence: Occurrence, cell: GateCell) -> str:
    """Return the state of a finding on one target, from STATES."""
    if occurrence.fingerprint in cell.against:
        return "new"
    if occurrence.finding.ignored:
        return "ignored"
    return "known" if occurrence.fingerprint in cell.known else "allowed"


def _merge(entries: Sequence[tuple[Occurrence, GateCell]], targets_in_all: int) -> Occurrence:
    state = min((entry.state for entry, _ in entries), key=STATES.index)
    # Where it fails is where to look; the other cells do not matter then.
    cells = [cell for entry, cell in entries if entry.state == state]
    models = tuple(dict.fromkeys(cell.model for cell in cells))
    targets = tuple(dict.fromkeys(cell.target for cell in cells))
    if len(targets) == 1:
        where = targets[0]
    elif len(targets) == targets_in_all:
        where = f"all {targets_in_all} targets"
    else:
        where = f"{targets[0]} and {plural(len(targets) - 1, 'more target')}"
    first = next(entry for entry, _ in entries if entry.state == state)
    return first._replace(models=models, targets=targets, scope=f"{', '.join(models)}; on {where}")


def _failures(gate: GateReport) -> Iterator[tuple[str, Failed, int]]:
    """Yield each model without a report, why, and on how many targets."""
    failed = group_values((cell.model, cell.failed) for cell in gate.cells if cell.failed is not None)
    yield from ((model, reasons[0], len(reasons)) for model, reasons in failed.items())


def suites(gate: GateReport) -> tuple[str, Iterable[Suite]]:
    """Make a suite for each model with a test case for each target.

    A case fails with the findings against it, is an error if its result is unknown, and passes
    with the other findings as its output.
    """
    models = groupby(gate.cells, key=lambda cell: cell.model)
    error = ("error", {"message": "the run was interrupted before it was audited"}, "")
    return "opcheck gate", [
        *(Suite(model, list(map(_case, cells))) for model, cells in models),
        *(Suite(model, [JunitCase(model, "interrupted", (error,))]) for model in gate.left),
    ]


def _case(cell: GateCell) -> JunitCase:
    against, others = [_answer(cell)], [_answer(cell)]
    if cell.failed:
        against += filter(None, (cell.failed.context, cell.failed.hint))
    for occurrence in _of_cell(cell):
        finding, place = occurrence.finding, occurrence.place
        where = summary.place(place) if place else ""
        why = f" ({finding.ignored})" if finding.ignored else ""
        about = f"{finding.severity} {finding.rule} {finding.message}"
        text = f"{occurrence.state}{why}: {about} {where}"
        if occurrence.state != "new":
            others.append(text)
        else:
            against += [text, *([f"help: {finding.hint}"] if finding.hint else [])]
    code = cell.code
    reasons = {"message": "; ".join(cell.reasons)}
    tag = "failure" if code == FINDINGS else "error"
    text, output = ("\n".join(map(one_line, lines)) for lines in (against, others))
    results = () if code == PASSED else ((tag, reasons, text),)
    return JunitCase(cell.model, cell.target, results, output)


def rows(gate: GateReport) -> Iterator[tuple[str, ...]]:
    """Make a row of COLUMNS for each cell."""
    for cell in gate.cells:
        ignored = sum(bool(occurrence.finding.ignored) for occurrence in _of_cell(cell))
        lengths = (len(cell.against), len(cell.known), ignored, len(cell.fixed))
        numbers = map(str, (cell.code, *lengths))
        yield cell.model, cell.target, cell.headline, *numbers, "; ".join(cell.reasons)


def lines(gate: GateReport) -> Iterator[dict[str, object]]:
    """Make an object for each finding at each of its places in each cell."""
    for cell in gate.cells:
        about = {"schema": FINDING_SCHEMA, "tool": gate.tool}
        about |= {"model": cell.model, "target": cell.target, "headline": cell.headline}
        if cell.failed is not None:
            yield {**about, "state": "failed", "message": cell.failed.message}
        for occurrence in _of_cell(cell):
            finding, place = occurrence.finding, occurrence.place
            own, last = pick(finding, "rule", "severity", "message", "op"), pick(finding, "hint", "ignored")
            where = {"file": occurrence.file, "line": occurrence.line if place and place.location else 0}
            yield {**about, **pick(occurrence, "state", "fingerprint"), **own, **where, **last}
