"""Changes of source text: what a rule proposes, and how the changes of a file are applied.

A change replaces a range of the text, as ruff's do, so that formatting and comments around it stay as they are.
"""

import ast
import bisect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from opcheck.common.grouping import group_values
from opcheck.common.versions import Version

#: safe: the program does the same on CUDA and on a machine without a GPU; unsafe: it may not.
Applicability = Literal["safe", "unsafe"]
#: A reviewer would not merge a longer line.
LONGEST_LINE = 100
_MOVE = re.compile(r"to\((.+)\)")
#: A comment behind code, which does not count for the length of the line.
_COMMENT = re.compile(r"(?<=\S)[ \t]+#[ \t].*")
_F_STRING = re.compile(r"""[fF][rR]?["']""")


class Edit(NamedTuple):
    """A range of text and what replaces it; lines count from 1, columns in bytes of UTF-8, as in ``ast``."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Fix(NamedTuple):
    """The edits that correct one finding; all of them are made, or none."""

    edits: tuple[Edit, ...]
    applicability: Applicability = "safe"
    #: the edits that call a helper function instead; its call, which returns a text, replaces {helper}
    helper_edits: tuple[Edit, ...] = ()
    #: the first release of torch that has what the edits write
    since: Version = Version(1, 12)
    #: what came with that release, in words
    needs: str = ""
    #: whether the program continues at a place where it failed clearly before
    gate: bool = False


#: No edits of other fixes.
_NONE: Mapping[int, Sequence[Edit]] = {}


def replace(node: ast.AST, text: str) -> Edit:
    """Replace an expression or a statement."""
    end_line, end_column = _end(node)
    return Edit(_line(node), _column(node), end_line, end_column, text)


def replace_method(call: ast.Call, name: str, text: str) -> Edit:
    """Replace ``name(...)`` at the end of ``x.name(...)``; the receiver stays as it is."""
    line, column = _end(call.func)
    return Edit(line, column - len(name.encode()), *_end(call), text)


def insert_before(node: ast.AST, text: str) -> Edit:
    """Insert text before an expression."""
    return Edit(_line(node), _column(node), _line(node), _column(node), text)


def insert_after(node: ast.AST, text: str) -> Edit:
    """Insert text after an expression or a statement."""
    return Edit(*_end(node), *_end(node), text)


def insert_line(line: int, text: str) -> Edit:
    """Insert whole lines, without the last newline, above a line."""
    return Edit(line, 0, line, 0, f"{text}\n")


def is_too_long(edits: Sequence[Edit], lines: Sequence[str], taken: Mapping[int, Sequence[Edit]] = _NONE) -> bool:
    """Return whether edits make a line longer than a reviewer would merge; a long line may grow, but for a choice.

    Args:
        edits: those of one fix.
        lines: the text before all fixes.
        taken: by the number of a line, the edits of other fixes there.
    """
    for line, of_fix in group_values((edit.line, edit) for edit in edits).items():
        others = taken.get(line, ())
        end = max(edit.end_line for edit in (*of_fix, *others))
        replaced = [text.rstrip("\r\n") for text in lines[line - 1 : end]] or [""]
        longest = max(map(len, replaced))
        if longest > LONGEST_LINE and not any(" if " in edit.text for edit in of_fix):
            continue
        moved = [edit._replace(line=1, end_line=edit.end_line - line + 1) for edit in (*of_fix, *others)]
        fixes = [moved[: len(of_fix)], *([edit] for edit in moved[len(of_fix) :])]
        text, _ = apply([f"{text}\n" for text in replaced], fixes)
        if max(len(_COMMENT.sub("", part)) for part in text.split("\n")) > max(LONGEST_LINE, longest):
            return True
    return False


def fit(
    edits: Sequence[Edit], lines: Sequence[str], taken: Mapping[int, Sequence[Edit]] = _NONE
) -> tuple[Edit, ...] | None:
    """Return the edits, with the device of a move on a line of its own if need be; None if a line is still too long."""
    forms = (tuple(edits), tuple(_wrap_move(edit, lines) for edit in edits))
    return next((each for each in forms if not is_too_long(each, lines, taken)), None)


def _wrap_move(edit: Edit, lines: Sequence[str]) -> Edit:
    line = lines[edit.line - 1] if edit.line <= len(lines) else ""
    move = _MOVE.fullmatch(edit.text)
    # Before Python 3.12 an expression of an f-string has one line.
    if move is None or _F_STRING.search(line):
        return edit
    indent = line[: len(line) - len(line.lstrip())]
    deeper = indent + ("\t" if indent.endswith("\t") else "    ")
    return edit._replace(text=f"to(\n{deeper}{move[1]}\n{indent})")


def merge_edits(edits: list[Edit]) -> Iterator[Edit]:
    """Join insertions at one place: the first argument begins where the device is inserted."""
    merged: dict[tuple[int, int], Edit] = {}
    for edit in edits:
        before = merged.get(edit[:2])
        merged[edit[:2]] = before._replace(text=before.text + edit.text) if before else edit
    yield from merged.values()


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _column(node: ast.AST) -> int:
    return int(getattr(node, "col_offset", 0))


def _end(node: ast.AST) -> tuple[int, int]:
    return int(getattr(node, "end_lineno", 1)), int(getattr(node, "end_col_offset", 0))


def apply(lines: Sequence[str], fixes: Sequence[Sequence[Edit]]) -> tuple[str, list[int]]:
    """Apply fixes to lines, which end in their newlines; a fix that overlaps an earlier fix is left out.

    The work is linear in the text, also for a single line with 100,000 fixes.

    Returns:
        The new text, and the numbers of the fixes that were applied.
    """
    taken: list[Edit] = []
    applied: list[int] = []
    for number, edits in sorted(enumerate(fixes), key=lambda item: min(item[1])[:2]):
        if any(_overlaps(edit, taken) for edit in edits):
            continue
        applied.append(number)
        for edit in edits:
            bisect.insort(taken, edit)
    content = [line.encode() for line in lines]
    starts = [0, *itertools.accumulate(map(len, content))]
    text = b"".join(content)
    pieces: list[bytes] = []
    place = 0
    for edit in taken:
        start, end = (_offset(*place_of, starts) for place_of in (edit[:2], edit[2:4]))
        pieces += [text[place:start], _write_edit(edit, lines).encode()]
        place = end
    return b"".join([*pieces, text[place:]]).decode(), applied


def _offset(line: int, column: int, starts: Sequence[int]) -> int:
    """The byte offset of a position; a line below the last line is the end of the text."""
    return min(starts[line - 1] + column, starts[-1]) if line <= len(starts) else starts[-1]


def _write_edit(edit: Edit, lines: Sequence[str]) -> str:
    """The text of an edit with the newlines of the lines around it."""
    text = edit.text
    if edit.line > len(lines) and lines and not _ending(lines[-1]):
        # Below a last line without a newline, the new last line has none either.
        text = "\n" + text.removesuffix("\n")
    last = min(edit.line, len(lines))
    around = lines[max(0, last - 2) : last]
    return text.replace("\n", next(filter(None, map(_ending, reversed(around))), "\n"))


def _ending(line: str) -> str:
    return next((ending for ending in ("\r\n", "\n", "\r") if line.endswith(ending)), "")


def _overlaps(edit: Edit, taken: Sequence[Edit]) -> bool:
    """Return whether an edit overlaps the accepted edits, which are in order and do not overlap each other."""
    place = bisect.bisect_left(taken, edit)
    return any(_overlap(edit, other) for other in taken[max(0, place - 1) : place + 1])


def _overlap(first: Edit, second: Edit) -> bool:
    """Return whether two ranges have a character in common, or begin at the same place."""
    return first[:2] == second[:2] or (first[:2] < second[2:4] and second[:2] < first[2:4])
