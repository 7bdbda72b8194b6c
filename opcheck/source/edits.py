"""Changes of source text: what a rule proposes, and how the changes of a file are applied.

A change replaces a range of the text, as ruff's do, so that formatting and comments around it stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

#: safe: the program does the same on CUDA and on a machine without a GPU; unsafe: it may not.
Applicability = Literal["safe", "unsafe"]


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
    #: the edits that call a helper function instead; {helper} stands for its call, which returns a text
    helper_edits: tuple[Edit, ...] = ()


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


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _column(node: ast.AST) -> int:
    return int(getattr(node, "col_offset", 0))


def _end(node: ast.AST) -> tuple[int, int]:
    return int(getattr(node, "end_lineno", 1)), int(getattr(node, "end_col_offset", 0))


def apply(lines: Sequence[str], fixes: Iterable[Sequence[Edit]]) -> tuple[list[str], int]:
    """Apply fixes to lines, which end in their newlines; a fix that overlaps an earlier one is left out.

    Returns:
        The new lines (some may hold several), and how many fixes were applied.
    """
    taken: list[Edit] = []
    by_line: dict[int, list[Edit]] = {}
    applied = 0
    for edits in sorted(fixes, key=lambda edits: min(edits)[:2]):
        if any(_overlap(edit, other) for edit in edits for other in _near(edit, by_line)):
            continue
        applied += 1
        for edit in edits:
            taken.append(edit)
            for line in range(edit.line, edit.end_line + 1):
                by_line.setdefault(line, []).append(edit)
    changed = list(lines)
    for edit in sorted(taken, reverse=True):
        _apply(changed, edit)
    return changed, applied


def _near(edit: Edit, by_line: dict[int, list[Edit]]) -> Iterable[Edit]:
    for line in range(edit.line, edit.end_line + 1):
        yield from by_line.get(line, ())


def _overlap(first: Edit, second: Edit) -> bool:
    """Return whether two ranges have a character in common, or begin at the same place."""
    return first[:2] == second[:2] or (first[:2] < second[2:4] and second[:2] < first[2:4])


def _apply(lines: list[str], edit: Edit) -> None:
    first, last = edit.line - 1, edit.end_line - 1
    if first >= len(lines):  # below a last line that may end without a newline
        if lines and not lines[-1].endswith(("\n", "\r")):
            lines[-1] += "\n"
        lines.append(edit.text)
        return
    ending = "\r\n" if lines[first].endswith("\r\n") else "\n"
    text = edit.text.replace("\n", ending)
    before = lines[first].encode()[: edit.column].decode()
    after = lines[last].encode()[edit.end_column :].decode()
    lines[first : last + 1] = [f"{before}{text}{after}", *[""] * (last - first)]
