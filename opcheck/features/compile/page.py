"""The answer to ``opcheck compile`` as a page."""

from collections.abc import Iterable, Iterator

from opcheck.common.text import and_more, plural
from opcheck.data.compile_defects import DECIDING
from opcheck.features.compile import compile_records as records
from opcheck.render.document import Block, Bullets, Facts, Heading, Lines, Table, TextSpan, Words, section

_RECURRENT = (
    "Dynamo leaves recurrent layers (nn.LSTM, nn.GRU, nn.RNN) alone unless torch._dynamo.config.allow_rnn is set"
)


def document(
    report: records.CompileReport, *, times: bool = True, short: bool = False, left: int = 0, command: str = ""
) -> Iterator[Block]:
    """Make the page: what to use first, then the table, then why.

    Args:
        report: what was found.
        times: say how long each variant took to compile; a page that is kept has no such thing.
        short: show the variants that do not work, and each other section in one line.
        left: how many variants were not tried that --all tries.
        command: the command line that compiles the program, without its backends.
    """
    target = f"torch {report.target['torch']}, macOS {report.target['macos']}"
    yield Heading(f"{report.model} compiled for {target}", 1)
    yield Lines((f"{report.advice.rstrip('.')}.",))
    following = _following(report, left, command)
    if short:
        yield from _short(report, following)
        return
    if report.differs:
        yield Lines((f"{report.differs}.",))
    if following:
        yield Facts(following)
    yield Heading("Variants")
    yield _variants(report, report.rows)
    yield from _why(report, times=times)


def _following(report: records.CompileReport, left: int, command: str) -> tuple[tuple[str, Words], ...]:
    """Say which variants were left out, and give the command for them, or for another backend where Inductor fails."""
    rest = f"{left:,} variants (--all has every backend and setting)"
    following = report.next or (f"{command} --all" if left else "")
    rows: tuple[tuple[str, Words], ...] = (("Not tried", rest), ("next", TextSpan(following)))
    return (rows if left else rows[1:]) if following else ()


def _why(report: records.CompileReport, *, times: bool = False) -> Iterator[Block]:
    failures = [group for group in report.failures if group.kind not in DECIDING]
    yield from section("Failures", Bullets(tuple(map(_failure, failures))))
    known = Bullets(tuple(map(_advisory, report.advisories)))
    yield from section("Known defects of this release", known)
    yield from _dynamo(report)
    graphs = ((tried, graph) for tried in report.compiled.tried for graph in tried.side)
    notes = {f"{tried.variant}: {n}": None for tried, graph in graphs for n in graph.notes}
    yield from section("Settings", Bullets(tuple(notes)))
    if times:
        yield from section("Time to compile", Bullets(tuple(_times(report))))
    yield from _metal(report)
    yield from section("Not checked", Bullets(report.not_checked))


def _variants(report: records.CompileReport, rows: Iterable[records.VariantRow]) -> Table:
    tried = {dtype for row in report.rows for dtype in row.outcomes}
    dtypes = [*(d for d in records.DTYPES if d in tried), *sorted(tried - {*records.DTYPES})]
    cells = ((row.variant, row.run, str(row.graphs), *(row.outcomes.get(each, "-") for each in dtypes)) for row in rows)
    return Table(("variant", "run", "graphs", *dtypes), tuple(cells))


def _short(report: records.CompileReport, following: tuple[tuple[str, Words], ...]) -> Iterator[Block]:
    """Show the variants that do not work, then a line for each section of the whole page, and what follows."""
    others = [row for row in report.rows if {*row.outcomes.values()} != {"works"}]
    if others:
        yield _variants(report, others)
    works = len(report.rows) - len(others)
    rows: list[tuple[str, Words]] = [("Variants", f"{works} of {len(report.rows)} work")]
    name = ""
    for block in (Heading("Differs"), Lines(tuple(filter(None, (report.differs,)))), *_why(report)):
        if isinstance(block, Heading):
            name = block.text
        elif isinstance(block, (Lines, Bullets)):
            texts = block.lines if isinstance(block, Lines) else block.items
            more = f"{len(texts)} (-v shows all): " if texts[1:] else ""
            rows += [(name, f"{more}{text}") for text in texts[:1]]
    yield Facts((*rows, *following), short=True)


def _metal(report: records.CompileReport) -> Iterator[Block]:
    """Count the kernels, and show the eager calls that are not native, with the first places that make them."""
    if not report.kernels and not report.externs:
        return
    others: dict[tuple[str, str], dict[str, None]] = {}
    for extern in report.externs:
        if extern.status != "native":
            places = others.setdefault((extern.op, extern.status), {})
            places[extern.line or extern.module] = None
    operators = {extern.op for extern in report.externs}
    native = ", all native" if operators and not others else ""
    called = f"{plural(len(operators), 'operator')} called eagerly{native}"
    yield Heading("Metal")
    yield Lines((f"{plural(report.kernels, 'kernel')} over all variants; {called}",))
    if others:
        rows = ((*key, and_more([*filter(None, places)], 2)) for key, places in others.items())
        yield Table(("operator", "on the target", "line"), tuple(rows), code=(0,))


def _failure(group: records.FailureGroup) -> str:
    place = group.line or (f"module {group.module}" if group.module else "")
    parts = (
        group.message,
        f" [{group.op}]" if group.op and group.op not in group.message else "",
        f" at {place}" if place else "",
        f": {group.text}" if group.text else "",
        f", and {group.places - 1} more" if group.places > 1 else "",
        f" ({group.defect})" if group.defect and group.defect not in group.message else "",
        " (opcheck's limit, not PyTorch's)" if group.ours else "",
        f" (fixed in torch {group.mended}, so it does not count)" if group.mended else "",
        _list_variants(group),
    )
    return "".join(parts)


def _list_variants(entry: records.FailureGroup | records.Advisory) -> str:
    """Return the variants and the links of an entry, behind its text."""
    texts = ("; ".join(entry.variants), " ".join(entry.links))
    return "".join(f" -- {text}" for text in texts if text)


def _advisory(advisory: records.Advisory) -> str:
    summary = advisory.summary.rstrip(".")
    kernels = f"; {plural(advisory.kernels, 'kernel')} of this kind" if advisory.kernels else ""
    where = f", the first at {advisory.line}" if advisory.line else ""
    mended = f"; fixed in torch {advisory.mended}" if advisory.mended else ""
    text = f"{advisory.id} ({advisory.effect}{mended}): {summary}{kernels}{where}"
    return text + _list_variants(advisory)


def _times(report: records.CompileReport) -> Iterator[str]:
    for tried in report.compiled.tried:
        if tried.seconds:
            variant = tried.variant
            side = sum(graph.seconds for graph in tried.side)
            beside = f", with {side:.1f} s for Metal" if variant.metal else ""
            yield f"{variant} ({variant.dtype}, {variant.run}): {tried.seconds:.1f} s{beside}"


def _dynamo(report: records.CompileReport) -> Iterator[Block]:
    attempts = report.compiled.tried
    skipped = max((tried.skipped for tried in attempts), default=0)
    empty = [str(tried.variant) for tried in attempts if tried.outcome == "nothing compiled"]
    if empty:
        names = ", ".join(dict.fromkeys(empty))
        ran = f"0 graphs: the program ran as without torch.compile, with {names}"
        yield from section("Nothing compiled", Lines((ran, _RECURRENT)))
    elif skipped:
        ran = f"{plural(skipped, 'frame')} of the program ran as without torch.compile"
        yield from section("Not compiled", Lines((ran,)))
    breaks = [_break(each) for tried in attempts for each in tried.breaks]
    guards = [recompile.guard for tried in attempts for recompile in tried.recompiles]
    yield from section("Graph breaks", Bullets(tuple(dict.fromkeys(breaks))))
    yield from section("Compiled again", Bullets(tuple(dict.fromkeys(guards))))


def _break(graph_break: records.GraphBreak) -> str:
    location = graph_break.location
    where = f" at {location}: {location.text}" if location else ""
    return f"{graph_break.id} {graph_break.reason}{where}".strip()
