"""Decides which of the proposed fixes may be made: by the releases of torch, float64, and later failures.

A fix loses neither the comments inside of the replaced text nor the quotes of an f-string around it.
"""

import ast
import functools
import io
import tokenize
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from opcheck.common.python_source import parse_expression
from opcheck.common.versions import Version
from opcheck.source import scan_requirements
from opcheck.source.devices import torch_name
from opcheck.source.edits import LONGEST_LINE, Edit, Fix, fit
from opcheck.source.program import walk
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, chain, method
from opcheck.source.rules.wide_dtypes import asked_dtype

#: Rules whose fixes let a program continue where it refused before.
_REFUSALS = {"OC204"}
#: What a program fails by after a check for CUDA that no longer stops it.
_LATER = {"OC205", "OC208", "OC209"}
#: Rules whose fixes put a value on MPS.
_MOVES = {"OC201", "OC202", "OC203", "OC222"}
_NARROW = {"bfloat16", "float", "half"}
#: A chain of names is followed so far.
_DEEPEST = 3


def filter_fixes(hits: Sequence[tuple[ScanRule, Hit]], scanned: Scanned) -> Iterator[tuple[ScanRule, Hit]]:
    """Yield the hits, without the fixes that would raise on a Mac, or would hide why a program cannot run there."""
    later = [
        (rule, hit)
        for rule, hit in hits
        if rule.id in _LATER and hit.fix is None and (hit.severity or rule.severity) != "note"
    ]
    for rule, hit in hits:
        if hit.fix is None:
            yield rule, hit
            continue
        is_gate = rule.id in _REFUSALS or hit.fix.gate
        failing = next((each for _, each in later if each is not hit), None) if is_gate else None
        reason = ""
        if failing is not None:
            line = getattr(failing.node, "lineno", 1)
            reason = f"line {line} would then fail without CUDA, with a less clear error"
        elif rule.id in _MOVES and (line := _float64_line(hit, scanned)):
            reason = f"line {line} has float64 or complex128 on this device, which MPS lacks"
        elif all(fit(edits, scanned.lines) is None for edits in _forms(hit.fix, scanned)):
            reason = f"the line would have more than {LONGEST_LINE} columns"
        refused = replace(hit, fix=None, no_fix=reason)
        yield rule, refused if reason else _by_release(hit, hit.fix, scanned)


def _forms(fix: Fix, scanned: Scanned) -> Iterator[Sequence[Edit]]:
    """The edits of a fix, and the edits that call a helper if the file can define it."""
    yield fix.edits
    if fix.helper_edits and torch_name(scanned):
        yield [edit._replace(text=edit.text.replace("{helper}", "get_device()")) for edit in fix.helper_edits]


def _by_release(hit: Hit, fix: Fix, scanned: Scanned) -> Hit:
    if not any("mps" in edit.text or "{helper}" in edit.text for edit in fix.edits):
        return hit
    target = scanned.target.torch
    pinned = _find_releases(scanned.path.parent) if scanned.path is not None else None
    oldest, newest = pinned or (target, target)
    if min(target, newest) < fix.since:
        where = f"torch {target}" if target < fix.since else f"the project's torch, at most {newest},"
        reason = f"{where} lacks what the fix needs: {fix.needs or 'MPS'} came with torch {fix.since}"
        return replace(hit, fix=None, no_fix=reason)
    is_safe = oldest >= fix.since
    return hit if is_safe else replace(hit, fix=fix._replace(applicability="unsafe"))


@functools.lru_cache(maxsize=256)
def _find_releases(folder: Path) -> tuple[Version, Version] | None:
    return scan_requirements.allowed_torch(folder)


# -- float64 -----------------------------------------------------------------------------------------


def _float64_line(hit: Hit, scanned: Scanned) -> int:
    """The line that puts float64 on the device that a fix changes; 0 for none."""
    lines = scanned.once(("float64 devices",), _float64_devices, scanned)
    if not lines:
        return 0
    parent = scanned.program.parent(hit.node)
    whole = parent if isinstance(parent, ast.If) and parent.test is hit.node else hit.node
    parts = [part for part in walk(whole) if id(part) in lines]
    return lines[id(parts[0])] if parts else 0


def _float64_devices(scanned: Scanned) -> dict[int, int]:
    """By the id of a node, the line of a call that makes float64 with it as its device."""
    lines: dict[int, int] = {}
    words = ("float64", "ouble", "complex128")
    if not any(word in line for line in scanned.lines for word in words):
        return lines
    for node in scanned.program.nodes:
        if not isinstance(node, ast.Call):
            continue
        device = argument(node, None, "device")
        if device is None and method(node) == "to" and not scanned.dotted_name(node.func):
            device = argument(node, 0)
        is_cuda = method(node) == "cuda"
        if (device is None and not is_cuda) or not _is_float64(node, scanned):
            continue
        if is_cuda:
            lines.setdefault(id(node), node.lineno)
        for part in _sources(device, scanned) if device is not None else ():
            lines.setdefault(id(part), node.lineno)
    return lines


def _is_float64(node: ast.Call, scanned: Scanned) -> bool:
    """Return whether the last dtype in a chain of calls is float64 or complex128."""
    for call in chain(node):
        if asked_dtype(call, scanned):
            return True
        if method(call) in _NARROW or argument(call, None, "dtype") is not None:
            return False
    return False


def _sources(node: ast.expr, scanned: Scanned) -> Iterator[ast.AST]:
    """The expressions that a value comes from, through names that the file binds."""
    waiting = [(node, _DEEPEST)]
    while waiting:
        part, depth = waiting.pop()
        for each in walk(part):
            yield each
            if isinstance(each, (ast.Name, ast.Attribute)) and depth:
                values = (binding.value for binding in scanned.program.bindings(each))
                waiting += [(value, depth - 1) for value in values if value is not None]


# -- comments and quotes ----

#: The bytes of UTF-8 inside of a character.
_CONTINUATION = {bytes([number]) for number in range(0x80, 0xC0)}
_QUOTES = frozenset("'\"")


def keeper(scanned: Scanned) -> Callable[[Hit], Fix | None]:
    """Return a function that returns the fix of a hit so that nothing is lost by it; None where that cannot be.

    Comments inside of a statement that is replaced move above it.  Elsewhere, a fix that would drop one is
    left out, and so is a fix whose quotes would end the f-string that it is in: before Python 3.12 an expression of an
    f-string may not contain the quotes of the f-string (PEP 701).
    """

    @functools.cache
    def comments() -> Sequence[tuple[int, int, str]]:
        return _comments(scanned.lines)

    @functools.cache
    def statements() -> frozenset[tuple[int, int]]:
        nodes = scanned.program.nodes
        return frozenset((node.lineno, node.col_offset) for node in nodes if isinstance(node, ast.stmt))

    def with_comments(edit: Edit) -> Edit | None:
        replaced = scanned.lines[edit.line - 1 : edit.end_line] if edit[:2] != edit[2:4] else ()
        if not any("#" in line for line in replaced):
            return edit
        first, last = (bisect_left(comments(), end) for end in (edit[:2], edit[2:4]))
        lost = [text for _, _, text in comments()[first:last] if text not in edit.text]
        if not lost:
            return edit
        indent = scanned.lines[edit.line - 1].encode()[: edit.column].decode()
        if indent.strip() or edit[:2] not in statements():
            return None
        return edit._replace(text="".join(f"{text}\n{indent}" for text in lost) + edit.text)

    def check_all(edits: Sequence[Edit], hit: Hit) -> tuple[Edit, ...]:
        kept = [with_comments(edit) for edit in edits if _keeps_quotes(edits, hit, scanned)]
        return tuple(edit for edit in kept if edit is not None) if None not in kept else ()

    def check(hit: Hit) -> Fix | None:
        fix = hit.fix
        edits = check_all(fix.edits, hit) if fix is not None else ()
        if fix is None or not edits:
            return None
        return fix._replace(edits=edits, helper_edits=check_all(fix.helper_edits, hit))

    return check


def _begins_plainly(edit: Edit, lines: Sequence[str]) -> bool:
    """Return whether the replaced text begins as Python reads it: it takes a full-width letter for a plain letter."""
    start = "".join(lines[edit.line - 1 : edit.line]).encode()[edit.column : edit.column + 8]
    is_plain = start[:1] not in _CONTINUATION and unicodedata.is_normalized("NFKC", start.decode(errors="ignore"))
    return is_plain or edit[:2] == edit[2:4]


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
        # Every # may then begin a comment.
        return [
            (number, len(line[: line.find("#")].encode()), line[line.find("#") :])
            for number, line in enumerate(lines, 1)
            if "#" in line
        ]


def _keeps_quotes(edits: Sequence[Edit], hit: Hit, scanned: Scanned) -> bool:
    """Return whether the quotes in edits leave an f-string around them whole, and names are whole, too."""
    if not all(_begins_plainly(edit, scanned.lines) for edit in edits):
        return False
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
        return ast.dump(parse_expression(f"({text}\n)")) == ast.dump(node)
    except (SyntaxError, RecursionError):
        return False
