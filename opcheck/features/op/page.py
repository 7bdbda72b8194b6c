"""The answer to ``opcheck op`` as a page: the answer and its exceptions first, the rest in sections."""

from collections.abc import Collection, Iterator

from opcheck.common.text import and_more, plural
from opcheck.lookup.answer_records import Answer, Note, OverloadAnswer, route_words
from opcheck.model.records import Evidence
from opcheck.render import document as blocks
from opcheck.render import wording
from opcheck.render.wording import cut, status_of

#: The sections that flags add.
SECTIONS = frozenset({"releases", "calls", "limits", "evidence"})
#: How many lines the headline after its first line and the facts of a short answer take.
_LINES = 11
#: What each effect of a limitation is called in a short answer.
_EFFECTS = {"aborts": "aborts", "raises": "raises", "falls_back": "CPU"}
#: The columns of the table of overloads.
_OVERLOADS: dict[str, blocks.Column] = {
    "overload": "name",
    "status": lambda overload: wording.label(overload.status, overload.kind),
    "since": "since",
    "dtypes that differ": lambda o: wording.differing(o.status, o.kind, o.dtypes),
}


def document(answer: Answer, shown: Collection[str] = SECTIONS) -> Iterator[blocks.Block]:
    """Make the page: the headline, the exceptions, and the sections that are shown."""
    main = answer.overloads[0]
    target = answer.target
    headline = _headline(answer, main)
    yield blocks.Heading(headline, 1)
    rows = list(_rows(answer, main))
    room = _LINES - len(headline) // 100 - sum(1 + (name == "why") for name, _ in rows)
    facts: list[tuple[str, blocks.Words]] = [(name, cut(text, 1 + (name == "why"))) for name, text in rows]
    facts += wording.limit_rows([*_exceptions(answer, main, headline)], room, "--limits")
    if facts:
        yield blocks.Facts(tuple(facts))
    if "releases" in shown:
        yield from _releases(answer, main)
    if "calls" in shown and len(answer.overloads) > 1:
        yield blocks.Heading(f"Overloads on torch {target['torch']}, macOS {target['macos']}")
        yield blocks.table_of(answer.overloads, _OVERLOADS, code=(0,))
    if "limits" in shown:
        for title, notes in (("Limitations", main.limitations), ("Advisories", main.advisories)):
            yield from blocks.section(title, blocks.Bullets(tuple(map(wording.note, notes))))
    if "evidence" in shown:
        yield from blocks.section("Evidence", blocks.Bullets(tuple(map(_evidence, main.evidence))))
        yield from blocks.section("Links", blocks.Bullets(answer.links))
    yield wording.closing_line(answer.op_lists, SECTIONS - {*shown})


def _headline(answer: Answer, main: OverloadAnswer) -> str:
    target = answer.target
    dtype = f" ({target['dtype']})" if target["dtype"] else ""
    since = f" (first native in {answer.first_native})" if answer.first_native else ""
    since = f" (since {main.since})" if answer.status == "native" else since
    label = wording.label(answer.status, answer.kind)
    texts = [
        f"{answer.op}{dtype}: {label} on torch {target['torch']}, macOS {target['macos']}{since}",
        wording.by_state({n: s for n, s in answer.modes.items() if status_of(s) != status_of(main)}),
        "" if answer.limit.startswith("wrong") else answer.limit,
        *_wrong(answer, main),
    ]
    return "; ".join(filter(None, texts))


def _wrong(answer: Answer, main: OverloadAnswer) -> Iterator[str]:
    """Yield what is wrong: the first case that is not rare, and how many other cases there are."""
    usual = [entry for entry in answer.wrong if entry.frequency != "rarely"]
    rare = len(answer.wrong) - len(usual)
    if usual:
        first, *others = usual
        dtypes = [name for name in first.dtypes if name in main.dtypes]
        dtypes = [] if main.dtype in dtypes else dtypes
        # Only values or nothing decide: a plain call in the headline's dtype meets it.
        word = "wrong" if first.condition or dtypes else "WRONG"
        case = _case(first)
        if others and case == _BELOW:
            case = f"in {len(usual)} cases below"
        elif others:
            case += f", and in {plural(len(others), 'case')} below"
        yield " ".join(filter(None, (word, "for" * bool(dtypes), ", ".join(dtypes), case)))
    if rare:
        yield f"wrong in {plural(rare, 'rare case')}"


#: The case of a statement that is too long for a headline.
_BELOW = "in a case below"


def _case(entry: Note) -> str:
    """Return the case as the end of a sentence."""
    if not entry.case:
        return ""
    if entry.case not in {entry.when, entry.condition}:
        return entry.case
    if entry.case == entry.when:
        return f"({wording.cut_at_word(entry.case, wording.SHORT_CASE)})"
    return f"where {entry.case}" if len(entry.case) < wording.SHORT_CASE else _BELOW


def _rows(answer: Answer, main: OverloadAnswer) -> Iterator[tuple[str, str]]:
    """Yield the facts beside the exceptions, each behind its name."""
    if answer.status != "native":
        yield "why", f"{'' if main.name == answer.op else f'{main.name}: '}{answer.because}"
    if main.prints and answer.status != "native":
        yield "prints", main.prints
    differing = wording.differing(main.status, main.kind, main.dtypes)
    if len(main.dtypes) > 1 and differing:
        yield "dtypes", f"{differing}; the others: {wording.label(*status_of(main))}"
    if before := _write_before(answer, main):
        yield "before", before
    if main.routes and main.route != "unknown":
        yield "computed", f"{_routes(main)}{main.choice and f'; {main.choice}'}"
    yield from _calls(answer.overloads, is_operator="::" in main.name)
    if answer.status != "native" and answer.links:
        yield "tracked", answer.links[-1]
    yield from (("note", note) for note in answer.notes)


def _exceptions(answer: Answer, main: OverloadAnswer, headline: str) -> Iterator[tuple[str, str, str]]:
    """Yield what is wrong or raises on the target: wrong results first, rare cases last."""
    # What depends on dtypes alone is in their row; what decides is the reason.
    limits = [
        note
        for note in main.limitations
        if note.holds
        and not note.decides
        and (note.case or not note.dtypes)
        and (not note.dtypes or not {*main.dtypes}.isdisjoint(note.dtypes))
    ]
    entries = [("wrong", entry) for entry in answer.wrong] + [
        (name, note) for effect, name in _EFFECTS.items() for note in limits if note.effect == effect
    ]
    for name, entry in sorted(entries, key=lambda entry: entry[1].frequency == "rarely"):
        yield name, *_exception(entry, main, headline)


def _exception(entry: Note, main: OverloadAnswer, headline: str) -> tuple[str, str]:
    """Return the case and the way out, and the name that ``opcheck explain`` takes.

    A case that the headline names is left out, so that the way out has room.
    """
    named = () if main.dtype in entry.dtypes else entry.dtypes
    dtypes = ", ".join(name for name in named if name in main.dtypes)
    case = wording.cut_at_word(entry.case, wording.SHORT_CASE)
    if case and entry.way_out and entry.case in headline:
        case = "" if dtypes else "way out"
    rare = "rarely" if entry.frequency == "rarely" else ""
    return ": ".join(filter(None, (rare, dtypes, case, entry.way_out))), f" ({entry.id})"


def _write_before(answer: Answer, main: OverloadAnswer) -> str:
    """Return the releases with another status."""
    cells = [cell for cell in main.releases if cell.torch != answer.target["torch"]]
    spans: dict[str, list[str]] = {}
    for lines, group in wording.by_release(cells, dtypes=False):
        for cell, system in zip(group, wording.systems(group), strict=True):
            if status_of(cell) != status_of(main):
                where = "" if system == "any" else f" on macOS {system}"
                spans.setdefault(wording.label(*status_of(cell)), []).append(lines + where)
    return "; ".join(f"{label}: {', '.join(lines)}" for label, lines in spans.items())


def _calls(overloads: Collection[OverloadAnswer], *, is_operator: bool) -> Iterator[tuple[str, str]]:
    """Yield what the calls of a module come to, or the other overloads of an operator where they differ."""
    main, *others = overloads
    differing = [each for each in others if status_of(each) != status_of(main)]
    states = {each.name: wording.label(*status_of(each)) for each in differing}
    if states or (len(others) > 1 and not is_operator):
        counted = plural(len(others), "other overload" if is_operator else "operator")
        rest = len(others) - len(states)
        same = f"{rest or ''} {wording.label(*status_of(main))}".strip() if rest else ""
        text = "; ".join(filter(None, (wording.group_words(states), same)))
        yield "others" if is_operator else "calls", f"{counted}; {text}"


def _releases(answer: Answer, main: OverloadAnswer) -> Iterator[blocks.Block]:
    """Make the table of all releases."""
    target = answer.target
    rows = []
    for lines, group in wording.by_release(main.releases):
        spans = [f"{target['macos']}"] if len(main.releases) == 1 else wording.systems(group)
        for number, (cell, span) in enumerate(zip(group, spans, strict=True)):
            differing = wording.differing(cell.status, cell.kind, cell.dtypes)
            rows.append(("" if number else lines, span, wording.label(cell.status, cell.kind), differing))
    columns = (f"status ({target['dtype'] or 'usual dtype'})", "dtypes that differ")
    yield blocks.Table(("torch", "macOS", *columns), tuple(rows), prose=(3,))


#: Metal kernels that the head names.
_KERNELS = 4


def _routes(overload: OverloadAnswer) -> str:
    """Return ``Metal kernel (layer_norm) since torch 2.13, MPSGraph before``."""
    *before, now = [step for step in overload.routes if step.route != "unknown"]
    names = f" ({and_more(now.kernels, _KERNELS)})" if now.kernels else ""
    spans = [f"{route_words(step)} since {step.torch}" for step in reversed(before[1:])]
    earliest = [f"{route_words(before[0])} before"] if before else []
    return ", ".join([f"{route_words(now)}{names} since torch {now.torch}", *spans, *earliest])


def _evidence(entry: Evidence) -> str:
    place = f" ({entry.where})" if entry.where else ""
    release = f"torch {entry.torch}: " if entry.torch else ""
    return f"{release}{entry.detail or entry.kind}{place}"
