"""The coverage of a release as Markdown, CSV and JSON, and that of all releases as an HTML page."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from opcheck.common.sanitize import finish_document
from opcheck.common.tool import VERSION
from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import macos_of, release_of
from opcheck.lookup.matrix import (
    CELLS,
    STATES,
    WRONG,
    Coverage,
    Matrix,
    Row,
    StateRun,
    coverage,
    matrix,
    short,
)
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup
from opcheck.render import document as blocks
from opcheck.render import findings, html
from opcheck.render.html import plot
from opcheck.render.markdown import as_markdown
from opcheck.render.text import as_text
from opcheck.render.wording import LABELS, NOT_CHECKED, group_words

_COLUMNS = (
    "name",
    "status",
    "kind",
    "since",
    "first_native",
    "route",
    "route_since",
    "dtype",
    "macos",
    *COMMON_DTYPES,
    "registration",
    "sparse",
    "autocast",
    "limitations",
    "advisories",
    "because",
)


def render(
    torch: str | None,
    macos: str | None,
    format_name: str,
    lists: OpLists | None = None,
    progress: Callable[[str], None] | None = None,
) -> str:
    """Write the coverage in the format of that name.

    Args:
        torch: The release.  None: the newest.
        macos: The macOS version.  None: the newest.
        format_name: ``markdown``, ``csv``, ``json``, ``html`` or, for a terminal, ``summary``.
        lists: The op lists.  None: those that opcheck ships.
        progress: Is called with the current step of long work.

    Raises:
        OpcheckError: There is no list for the release, or it does not run on that macOS.
    """
    lookup = OperatorLookup(lists or load())
    if format_name == "html":
        release = release_of(torch, lookup.lists)
        system = str(macos_of(macos, release))
        return render_web_page(coverage(system, lookup, progress=progress), release.line)
    return write(matrix(torch, macos, lookup=lookup), format_name)


def write(record: Matrix, format_name: str) -> str:
    """Write one release in a format other than the page."""
    if format_name == "summary":
        return finish_document(as_text(_summary(record)), "text")
    if format_name == "markdown":
        return finish_document(as_markdown(_blocks(record)), format_name)
    if format_name == "csv":
        return findings.table(_COLUMNS, map(tuple, map(_cells, record.rows)))
    return _json(record)


def _json(record: Matrix) -> str:
    """Write JSON, schema ``opcheck-matrix/1``, one overload on each line."""
    content = msgspec.to_builtins(record)
    rows = content.pop("rows")
    head = json.dumps(content, indent=1, ensure_ascii=False).removesuffix("\n}")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return f'{head},\n "rows": [\n{lines}\n]\n}}\n'


def _cells(row: Row) -> Iterator[str]:
    yield from (row.name, row.status, row.kind or "", row.since, row.first_native or "")
    yield from (row.route, row.route_since, row.dtype)
    yield _systems(row)
    # A cell that equals the status is left empty, so that the others show.
    yield from ("" if row.dtypes[d] == short(row) else row.dtypes[d] for d in COMMON_DTYPES)
    yield from (row.registration, " ".join(row.sparse), row.autocast or "")
    yield from (" ".join(row.limitations), " ".join(row.advisories), row.because)


def _systems(row: Row) -> str:
    """Return ``13.0 unsupported, 14.0 native``: the status from each macOS on; empty where all are alike."""
    return ", ".join(f"{macos} {state}" for macos, state in row.systems.items())


def _summary(record: Matrix) -> Iterator[blocks.Block]:
    """Make the counts, and the commands that write the rows."""
    yield blocks.Heading(f"MPS coverage of torch {record.release} on macOS {record.macos}", 1)
    numbers = ((LABELS[state], f"{record.counts[state]:,}") for state in STATES)
    wrong = sum(WRONG in row.dtypes.values() for row in record.rows)
    total = record.counts["overloads"]
    facts = (*numbers, (LABELS[WRONG], f"{wrong:,} for some inputs in some dtype"))
    yield blocks.Facts((("overloads", f"{total:,}"), *facts))
    target = f"--torch {record.torch} --macos {record.macos}"
    yield blocks.Lines(
        (
            *(f"Note: {note}." for note in record.notes),
            f"All rows: opcheck matrix {target} -o coverage.md, or .csv, .json.",
            "All releases, with a search: opcheck matrix -o coverage.html.",
        )
    )


def _blocks(record: Matrix) -> Iterator[blocks.Block]:
    yield blocks.Heading(f"MPS coverage of torch {record.release} on macOS {record.macos}", 1)
    lists = record.op_lists
    yield blocks.Lines(
        (
            f"Generated by {record.tool} from op lists {lists['digest']} ({lists['wheel']}).",
            NOT_CHECKED,
            "The status is that of a plain call; limitations and advisories have the exceptions.",
            *(f"Note: {note}." for note in record.notes),
        )
    )
    total = record.counts["overloads"]
    rows_of_states = [(LABELS[state], f"{record.counts[state]:,}") for state in STATES]
    every = ("all", f"{total:,}")
    yield blocks.Table(("what happens", "overloads"), (*rows_of_states, every))
    for state in reversed(STATES):
        rows = [row for row in record.rows if short(row) == state]
        if rows:
            yield blocks.Heading(f"{LABELS[state]}: {len(rows):,}")
            yield from _compact(rows) if state in {"native", "unknown"} else (_table(rows),)
    wrong = [row for row in record.rows if WRONG in row.dtypes.values()]
    yield from blocks.section(f"Native, wrong for some inputs: {len(wrong):,}", _table(wrong))
    noted = [row for row in record.rows if short(row) == "native" and row.limitations]
    yield from blocks.section(f"Native, with limits: {len(noted):,}", _table(noted))
    used = [row.advisories for row in record.rows if row.advisories]
    ids = sorted({name for names in used for name in names})
    summaries = tuple(f"{name}: {record.statements[name].summary}" for name in ids)
    yield from blocks.section("Advisories", blocks.Bullets(summaries))


def _table(rows: Sequence[Row]) -> blocks.Table:
    columns: dict[str, blocks.Column] = {
        "operator": "name",
        "since": "since",
        "why": "because",
        "macOS": _systems,
        "dtypes that differ": _differing,
        "limits and advisories": lambda row: ", ".join((*row.limitations, *row.advisories)),
    }
    return blocks.table_of(rows, columns, code=(0,))


def _differing(row: Row) -> str:
    # No float64 tensor can be made on MPS: the cell is the same in every row.
    cells = row.dtypes.items()
    return group_words({d: s for d, s in cells if s != short(row) and d != "float64"})


def _compact(rows: Sequence[Row]) -> Iterator[blocks.Block]:
    """List the names by the release of their last change; overloads follow their operator."""
    by_since: dict[str, list[Row]] = {}
    for row in rows:
        by_since.setdefault(row.since, []).append(row)
    items = []
    for since in sorted(by_since, key=lambda line: (Version.parse(line.lstrip("≤")), line)):
        names = []
        ordered = sorted(by_since[since], key=lambda row: row.name.partition("."))
        for base, group in groupby(ordered, key=lambda row: row.name.partition(".")[0]):
            overloads = [row.name.partition(".")[2] or "default" for row in group]
            short = base.removeprefix("aten::")
            names.append(short + ("" if overloads == ["default"] else f" ({', '.join(overloads)})"))
        items.append(f"since {since}: {'; '.join(names)}")
    yield blocks.Bullets(tuple(items))


def render_web_page(coverage: Coverage, torch: str) -> str:
    """Write the coverage of all releases as one HTML page without network, opened at that release.

    Raises:
        OSError: the template is not in the package.
    """
    return html.with_script(
        "matrix",
        _web_page_data(coverage, torch),
        plot=plot(coverage.counts, coverage.macos),
        macos=coverage.macos,
        digest=coverage.digest,
        version=VERSION,
    )


def _web_page_data(coverage: Coverage, torch: str) -> dict[str, Any]:
    lines = [release.line for release in coverage.releases]
    reasons, systems, states = html.Pool(), html.Pool(), html.Pool()
    notes = {name: number for number, name in enumerate(coverage.notes)}

    def run(entry: StateRun) -> list[Any]:
        """Return [release, states, default dtype, reason, systems, notes]; [release] where the overload is removed."""
        place = lines.index(entry.torch)
        if not entry.exists:
            return [place]
        spans = ", ".join(f"{macos}+ {LABELS[state]}" for macos, state in entry.systems.items())
        shown = states("".join(map(str, entry.states)))
        row: list[Any] = [place, shown, entry.default, reasons(entry.because), systems(spans)]
        return [*row, [notes[name] for name in entry.notes]] if entry.notes else row

    operators = [[name, *map(run, runs)] for name, runs in coverage.operators.items()]
    return {
        "torch": torch,
        "macos": coverage.macos,
        "releases": [
            {"line": r.line, "torch": r.torch, "built": r.built.isoformat(), "min": r.minimum_macos}
            for r in coverage.releases
        ],
        "states": [[state, LABELS[state]] for state in CELLS],
        "dtypes": list(COMMON_DTYPES),
        "sets": list(states.numbers),
        "reasons": list(reasons.numbers),
        "systems": list(systems.numbers),
        "notes": [[n, *msgspec.to_builtins(about).values()] for n, about in coverage.notes.items()],
        "ops": operators,
        "aliases": dict(coverage.aliases),
    }
