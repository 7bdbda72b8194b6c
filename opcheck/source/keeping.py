"""Keeps what a fix would lose: comments inside of what it replaces, and the quotes of an f-string around it."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from bisect import bisect_left
from collections.abc import Callable, Sequence

from opcheck.source.edits import Edit, Fix
from opcheck.source.rule import Hit, Scanned

_QUOTES = frozenset("'\"")


def keeper(scanned: Scanned) -> Callable[[Hit], Fix | None]:
    """Return a function that returns the fix of a hit so that nothing is lost by it; None where that cannot be.

    Comments inside of a statement that is replaced come to stand above it.  Elsewhere, a fix that would drop one is
    left out, and so is a fix whose quotes would end the f-string that it is in: before Python 3.12 an expression of an
    f-string may not hold the quotes of the f-string (PEP 701).
    """

    @functools.cache
    def comments() -> Sequence[tuple[int, int, str]]:
        return _comments(scanned.lines)

    @functools.cache
    def statements() -> frozenset[tuple[int, int]]:
        nodes = scanned.program.nodes
        return frozenset(
            (node.lineno, node.col_offset) for node in nodes if isinstance(node, ast.stmt)
        )

    def edited(edit: Edit) -> Edit | None:
        replaced = scanned.lines[edit.line - 1 : edit.end_line] if edit[:2] != edit[2:4] else ()
        if not any("#" in line for line in replaced):
            return edit
        lost = [
            text
            for _, _, text in comments()[
                bisect_left(comments(), edit[:2]) : bisect_left(comments(), edit[2:4])
            ]
            if text not in edit.text
        ]
        if not lost:
            return edit
        indent = scanned.lines[edit.line - 1].encode()[: edit.column].decode()
        if indent.strip() or edit[:2] not in statements():
            return None
        return edit._replace(text="".join(f"{text}\n{indent}" for text in lost) + edit.text)

    def whole(edits: Sequence[Edit], hit: Hit) -> tuple[Edit, ...]:
        kept = [edited(edit) for edit in edits if _fits(edits, hit, scanned)]
        return tuple(edit for edit in kept if edit is not None) if None not in kept else ()

    def kept(hit: Hit) -> Fix | None:
        fix = hit.fix
        edits = whole(fix.edits, hit) if fix is not None else ()
        return (
            fix._replace(edits=edits, helper_edits=whole(fix.helper_edits, hit))
            if fix and edits
            else None
        )

    return kept


def _comments(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """The line of each comment, its column in bytes, and its text."""
    text = "\n".join(lines) + "\n"
    try:
        return [
            (token.start[0], len(token.line[: token.start[1]].encode()), token.string)
            for token in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline)
            if token.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError, ValueError):
        # Every # may then begin one.
        return [
            (number, len(line[: line.find("#")].encode()), line[line.find("#") :])
            for number, line in enumerate(lines, 1)
            if "#" in line
        ]


def _fits(edits: Sequence[Edit], hit: Hit, scanned: Scanned) -> bool:
    """Return whether the quotes in edits leave an f-string around them whole."""
    child: ast.AST = hit.node
    for node, _ in scanned.program.ancestors(hit.node):
        if isinstance(node, ast.FormattedValue) and child is not node:
            written = scanned.text(child)
            # Before Python 3.12, the place of a node in an f-string may be that of an equal text before it.
            if not _is_source(written, child):
                return False
            if any(_QUOTES & set(edit.text) - set(written) for edit in edits):
                return False
        if isinstance(node, ast.stmt):
            break
        child = node
    return True


def _is_source(text: str, node: ast.AST) -> bool:
    try:
        return ast.dump(ast.parse(f"({text}\n)", mode="eval").body) == ast.dump(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
