"""The answer to ``opcheck history`` as a page: the steps of the usual overload first, the rest in sections."""

from collections.abc import Collection, Iterator
from itertools import groupby

from opcheck.common.text import plural
from opcheck.lookup.operator_history import HistoryAnswer, OverloadHistory, Step
from opcheck.render import wording
from opcheck.render.document import Block, Facts, Heading, Lines, Table, Words

#: The sections that flags add.
SECTIONS = frozenset({"calls", "releases"})
#: How many lines the steps of a short answer take, with the headline after its first line.
_LINES = 9


def document(answer: HistoryAnswer, shown: Collection[str] = SECTIONS) -> Iterator[Block]:
    """Make the page: the changes of the status, or with ``releases`` a table of all changes."""
    main, *others = answer.overloads
    dtype = f" ({answer.dtype})" if answer.dtype else ""
    name = "" if main.name == answer.op else f", {main.name}"
    headline = f"{answer.op}{dtype}{name}: {_headline(main)} on macOS {answer.macos}"
    yield Heading(headline, 1)
    if "releases" in shown:
        yield _table(main)
    elif facts := _facts(main, _LINES - len(headline) // 100):
        yield Facts(tuple(facts))
    for overload in others if "calls" in shown else ():
        yield Heading(f"{overload.name}: {_headline(overload)}")
        if "releases" in shown:
            yield _table(overload)
    if others and "calls" not in shown:
        yield Lines((f"{plural(len(others), 'other overload')}: --calls",))
    yield wording.closing_line(answer.op_lists, SECTIONS - {*shown})


def _status(step: Step) -> str:
    if step.change == "removed":
        return "no such overload"
    return wording.label(step.status, step.kind)


def _headline(overload: OverloadHistory) -> str:
    """Return the statuses with the release that brought each: ``CPU fallback, always in 1.13; native since 2.3``."""
    groups = (list(group) for _, group in groupby(overload.steps, key=_status))
    steps = [group[0] for group in groups]
    if not steps:
        return "in no release of the lists"
    first, *later = (_status(step) for step in steps)
    if not later:
        return f"{first} since {steps[0].torch}"
    return f"{first} in {steps[0].torch}, {later[-1]} since {steps[-1].torch}"


def _facts(overload: OverloadHistory, room: int) -> list[tuple[str, Words]]:
    """Return what changed in each release, in a line or two; the first release is in the headline."""
    rows: list[tuple[str, str, str]] = []
    for step in reversed(overload.steps[1:]):
        status = _status(step) if step.change in {"better", "worse", "removed"} else ""
        own, states = wording.status_of(step), step.dtypes.items()
        other = {n: s for n, s in states if not status or wording.status_of(s) != own}
        texts = (status, wording.by_state(other), *_causes(step, overload.name))
        rows.append((step.torch, "; ".join(filter(None, texts)), ""))
    return [*wording.limit_rows(rows, room, "--releases")]


#: What a registration means, in a short answer; the table of ``--releases`` has the values themselves.
_REGISTERED = {"kernel": "an MPS kernel is registered", "cpu_only": "only a CPU kernel is registered", "not called": ""}


def _registration(text: str, name: str) -> str:
    """Write ``aten::mm: cpu_only -> kernel`` in words, which name the overload where it is another one."""
    overload, _, change = text.partition(": ")
    value = change.rpartition(" -> ")[2]
    if value not in _REGISTERED:
        return f"it calls {value.removeprefix('out:')}" if value.startswith("out:") else text
    words = _REGISTERED[value]
    return f"{words} for {overload}" if words and overload != name else words


def _causes(step: Step, name: str) -> Iterator[str]:
    """Yield what changed a step, the statements that begin and end together."""
    sorts: dict[str, list[str]] = {"applies from here": [], "no longer applies": []}
    for text in step.changed if step.change != "removed" else ():
        sort, _, name = text.partition(": ")
        if sort in sorts:
            sorts[sort].append(name)
        else:
            yield _registration(text, name)
    yield from (f"{sort}: {', '.join(names)}" for sort, names in sorts.items() if names)


def _table(overload: OverloadHistory) -> Table:
    rows = [row for step in overload.steps for row in _rows(step)]
    return Table(("torch", "status", "", "what changed it"), tuple(rows), prose=(3,))


def _rows(step: Step) -> Iterator[tuple[str, ...]]:
    """Make a row for the step, and a row below it for each further change."""
    changed = list(step.changed) if step.change != "removed" else []
    if step.change != "first" and step.dtypes:
        changed.append(f"now {wording.by_state(step.dtypes)}")
    first, *others = changed or [""]
    yield step.torch, _status(step), "" if step.change in {"first", "same"} else step.change, first
    for text in others:
        yield "", "", "", text
