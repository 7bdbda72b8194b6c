"""The words for statuses, spans of releases and notes, the same in every answer."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from opcheck.common.text import and_more
from opcheck.common.vocabulary import FallbackKind, Status
from opcheck.judge.judge import OUTCOMES
from opcheck.lookup.answer_records import Cell, Note, OverloadAnswer, State
from opcheck.lookup.matrix import STATES, WRONG, cell_state
from opcheck.render.document import Lines, TextSpan, Words

if TYPE_CHECKING:  # opcheck op needs neither of these rooms
    from opcheck.judge.report_changes import Entry
    from opcheck.lookup.operator_history import Step

#: What an answer from the lists alone rests on.
NOT_CHECKED = "Nothing was observed on a Mac: this follows from the release's own files."
#: Places of one finding that are named.
_SHOWN = 3
#: The labels of the states, by their one-word names.
LABELS = dict(zip(STATES, (outcome.label for outcome in OUTCOMES.values()), strict=True))
LABELS[WRONG] = "native, wrong"

#: The state of a dtype that differs from that of its row, in a few words.
SHORT = LABELS | {
    "fallback_internal": "CPU inside the kernel",
    "fallback_always": "CPU always",
    "fallback_env": "CPU with the variable",
    "unsupported": "refused",
    WRONG: "wrong for some inputs",
}
#: The dtypes that a list of dtypes may name in one word.
_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
#: Characters of a fact's text that surely fit into one line.
_LINE = 84
#: Columns of a case in a headline.
SHORT_CASE = 60


def status_of(entry: State | Cell | OverloadAnswer | Step) -> tuple[Status, FallbackKind | None]:
    """Return the status and the kind."""
    return entry.status, entry.kind


def cut_at_word(text: str, columns: int) -> str:
    """Return a text that is cut at a word where it is too long."""
    return textwrap.shorten(text, columns, placeholder=" ...")


def cut(text: str, lines: int = 1, tail: str = "") -> TextSpan:
    """Return a fact that a short answer cuts at so many lines; its tail stays."""
    return TextSpan(text + tail, "dim", lines=lines, tail=tail)


def limit_rows(rows: Sequence[tuple[str, str, str]], room: int, flag: str) -> Iterator[tuple[str, Words]]:
    """Yield as many rows as there is room for; the last counts the others.

    A long text gets a second line while there is room.

    Args:
        rows: name, text and tail of each row, as ``cut`` takes them.
        room: the lines that all rows may take.
        flag: the flag that shows all rows.
    """
    room = max(room, 1)
    shown = rows if len(rows) <= room else rows[: room - 1]
    spare = room - len(rows)
    for name, text, tail in shown:
        is_long = spare > 0 and len(text) + len(tail) > _LINE
        spare -= is_long
        yield name, cut(text, 1 + is_long, tail)
    if len(shown) < len(rows):
        yield "", f"and {len(rows) - len(shown)} more: {flag}"


def closing_line(op_lists: Mapping[str, str], left_out: Collection[str]) -> Lines:
    """Return the last line of an answer: what it rests on, and the flags that show the rest."""
    flags = [f"--{name}" for name in sorted({*left_out} - {"verbose"})]
    lists = f"Op lists {op_lists['digest']}, newest torch {op_lists['newest']}."
    more = f"Nothing was observed on a Mac. More: {', '.join([*flags, '-v'])}."
    return Lines((more if left_out else f"{NOT_CHECKED} {lists}",))


def label(status: Status, kind: FallbackKind | None) -> str:
    """Return the words for a status: ``native``, ``CPU fallback, with the variable`` ..."""
    return OUTCOMES[status, kind].label


def differing(status: Status, kind: FallbackKind | None, dtypes: Mapping[str, State]) -> str:
    """Name the dtypes with another status: ``refused: float64; CPU always: bool``."""
    return by_state({n: s for n, s in dtypes.items() if status_of(s) != (status, kind) or s.wrong})


def by_state(dtypes: Mapping[str, State]) -> str:
    """Name the dtypes by their status: ``refused: float64, integers; CPU always: bool``."""
    words = {name: SHORT[cell_state(state)] for name, state in dtypes.items()}
    first, *others = (words.get(name, "") for name in _INTEGERS)
    if first and {*others} == {first}:
        words = {"integers" if n == _INTEGERS[0] else n: word for n, word in words.items()}
        words = {name: word for name, word in words.items() if name not in _INTEGERS}
    return group_words(words)


def group_words(words: Mapping[str, str]) -> str:
    """Name what has the same words together: ``refused: float64, bool; CPU always: int8``."""
    groups: dict[str, list[str]] = {}  # not group_values: opcheck op loads no module for it
    for name, text in words.items():
        groups.setdefault(text, []).append(name)
    return "; ".join(f"{text}: {', '.join(names)}" for text, names in groups.items())


def write_since(line: str) -> str:
    """Return a release line; ``≤2.13`` in words."""
    if not line.startswith("≤"):
        return line
    return f"{line.removeprefix('≤')} or earlier (nothing is known of the release before)"


def releases(lines: Sequence[str]) -> str:
    """Return ``2.3`` or ``2.3-2.8``."""
    return lines[0] if len(lines) == 1 else f"{lines[0]}-{lines[-1]}"


def by_release(cells: Iterable[Cell], *, dtypes: bool = True) -> list[tuple[str, tuple[Cell, ...]]]:
    """Return the cells of each release; neighbours that are alike on the same macOS are merged.

    Args:
        cells: those of an overload, the oldest release first.
        dtypes: whether they must be alike in each dtype, too.
    """
    if not dtypes:
        groups = groupby(cells, key=lambda cell: (cell.torch, cell.status, cell.kind))
        cells = [replace(next(group), dtype="", dtypes={}) for _, group in groups]
    return [(releases(lines), group) for lines, group in runs(cells)]


def runs(cells: Iterable[Cell]) -> list[tuple[list[str], tuple[Cell, ...]]]:
    """Return the release lines that are alike on the same macOS, with the cells of the first."""
    rows: list[tuple[list[str], tuple[Cell, ...]]] = []
    for line, of_release in groupby(cells, key=lambda cell: cell.torch):
        group = tuple(of_release)
        if rows and _alike(rows[-1][1], group):
            rows[-1][0].append(line)
        else:
            rows.append(([line], group))
    return rows


def _alike(before: Sequence[Cell], after: Sequence[Cell]) -> bool:
    """Return whether two releases differ only in the macOS that they start on."""
    return len(before) == len(after) and all(
        (a.status, a.kind, a.dtype, a.dtypes) == (b.status, b.kind, b.dtype, b.dtypes)
        and (number == 0 or a.macos == b.macos)
        for number, (a, b) in enumerate(zip(before, after, strict=True))
    )


def systems(group: Sequence[Cell]) -> list[str]:
    """Return the macOS span of each cell of a release: ``any``, ``before 14.0``, ``14.0+``."""
    if len(group) == 1:
        return ["any"]
    starts = [cell.macos for cell in group]
    middle = [f"{text} to {until}" for text, until in pairwise(starts[1:])]
    return [f"before {starts[1]}", *middle, f"{starts[-1]}+"]


def note(entry: Note) -> str:
    """Write a limitation or an advisory on one line."""
    scope = {"torch ": entry.torch, "macOS ": entry.macos, "": ", ".join(entry.dtypes)}
    scope |= {"where ": entry.condition, "when ": entry.when}
    inside = "; ".join(f"{word}{text}" for word, text in scope.items() if text)
    effect = entry.effect.replace("_", " ")
    text = f"{entry.id}: {effect}" + (f" ({inside})" if inside else "") + f". {entry.summary}"
    links = f" See {' '.join(entry.links)}" if entry.links else ""
    return f"{text} {entry.way_out}".strip() + links


def list_findings(entries: Iterable[Entry], *, hints: bool = True) -> Iterator[str]:
    """Write a line for each finding: its first places, and its help unless the finding is gone."""

    def finding(entry: Entry) -> tuple[str, str, str, str, str]:
        return entry.severity, entry.rule, entry.message, entry.hint, entry.ignored

    for (severity, rule, message, hint, ignored), group in groupby(entries, key=finding):
        places = [place for entry in group if (place := place_of(entry))]
        more = f"help: {hint}" if hint and hints else ""
        more = f"ignored: {ignored}" if ignored else more
        yield " -- ".join(filter(None, (f"{severity} {rule} {message}", and_more(places, _SHOWN), more)))


def place_of(entry: Entry) -> str:
    """Return where a finding is: its line, module and phase."""
    module = f" ({entry.module})" if entry.module else ""
    phase = f" in {entry.phase}" if entry.phase not in {"", "forward"} else ""
    return f"{entry.line or 'no line'}{phase}{module}" if entry.line or entry.module else ""
