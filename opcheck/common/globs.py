"""Matches names with patterns of strangers, in time that grows with the length of the name times that of the pattern.

A regular expression with several ``.*`` tries every way to divide a name among them.  It never needs to: if the text
between two stars fits at all, its first place leaves the most for the rest.  So each star but the last is in an
atomic group, which tries one place alone.
"""

import functools
import itertools
import re
import sys
from collections.abc import Iterator

_NUMBERS = itertools.count()


def fits(name: str, glob: str) -> bool:
    """Return whether a pattern with ``*``, ``?`` and ``[...]`` matches a whole name, as ``fnmatch.fnmatchcase``."""
    return _compile_glob(glob).match(name) is not None


@functools.lru_cache(maxsize=4096)
def _compile_glob(glob: str) -> re.Pattern[str]:
    return re.compile(f"{_expression([*_tokens(glob)], '.')}\\Z", re.DOTALL)


def ignore_expression(line: str) -> tuple[bool, str] | None:
    """Translate a line of a ``.gitignore`` file (git 2.47, Documentation/gitignore.adoc).

    Args:
        line: the line, without its newline.

    Returns:
        Whether a path that it matches is ignored (or included again, by ``!``), and a regular expression for paths
        relative to the folder of the file, a directory's with ``/`` at the end; None: a comment, or no pattern.
    """
    text = line.rstrip(" ")
    if text != line and _ends_in_escape(text):
        text += " "
    if not text or text[0] == "#":
        return None
    is_ignored = text[0] != "!"
    text = text[not is_ignored :]
    end = "/" if text.endswith("/") else "/?"
    anchored = "/" in text.removesuffix("/")
    segments = text.removesuffix("/").removeprefix("/").split("/")
    segments = ["**" if len(each) > 1 and not each.strip("*") else each for each in segments]
    # A backslash at the end escapes nothing: git matches nothing with such a line.
    if segments == [""] or _ends_in_escape(text):
        return None
    groups = [
        "/".join(map(_segment, group))
        for is_any, group in itertools.groupby(segments, lambda segment: segment == "**")
        if not is_any
    ]
    begins_with_any = not anchored or segments[0] == "**"
    ends_with_any = anchored and segments[-1] == "**"
    parts = []
    for number, group in enumerate(groups):
        is_last = number == len(groups) - 1
        anywhere = "(?:[^/]+/)*?" if number or begins_with_any else ""
        if is_last and not ends_with_any:
            parts.append(f"{anywhere}{group}{end}")
        else:
            parts.append(_atomic(f"{anywhere}{group}/"))
    if ends_with_any or not groups:
        parts.append(f"[^/].*{'/' if end == '/' else ''}")
    return is_ignored, "".join(parts)


def _ends_in_escape(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _segment(text: str) -> str:
    """Return the expression for one name of a path, which is never empty."""
    return rf"(?=[^/]){_expression([*_tokens(text, escapes=True)], '[^/]')}(?=/|\Z)"


def _expression(tokens: list[str], character: str) -> str:
    """Join the expressions of single characters; an empty token is a star."""
    chunks = itertools.groupby((character if each == "?" else each for each in tokens), bool)
    texts = ["".join(chunk) for is_text, chunk in chunks if is_text]
    if all(tokens):
        return "".join(texts)
    first = texts.pop(0) if tokens[0] else ""
    last = texts.pop() if tokens[-1] else ""
    return f"{first}{''.join(_atomic(f'{character}*?{text}') for text in texts)}{character}*{last}"


def _atomic(text: str) -> str:
    if sys.version_info >= (3, 11):
        return f"(?>{text})"
    name = f"g{next(_NUMBERS)}"
    return f"(?=(?P<{name}>{text}))(?P={name})"


def _tokens(glob: str, *, escapes: bool = False) -> Iterator[str]:
    """Yield an expression for each character of a pattern: ``?`` for any, empty for a star."""
    place = 0
    while place < len(glob):
        character = glob[place]
        place += 1
        if character == "*":
            yield ""
        elif character == "?":
            yield "?"
        elif character == "\\" and escapes and place < len(glob):
            yield re.escape(glob[place])
            place += 1
        elif character == "[" and (end := _end_of_class(glob, place, escapes)) > 0:
            yield _class(glob[place:end], without_slash=escapes)
            place = end + 1
        elif character == "[" and escapes:
            yield "(?!)"  # git matches nothing with a class that does not end (wildmatch.c, WM_ABORT_ALL)
        else:
            yield re.escape(character)


def _end_of_class(glob: str, place: int, caret: bool) -> int:  # noqa: FBT001  (handed on)
    # A bracket right behind the first one, or behind the sign of negation, belongs to the characters.
    return glob.find("]", place + 1 + (glob[place : place + 1] in ({"!", "^"} if caret else {"!"})))


def _class(text: str, *, without_slash: bool) -> str:
    negated = text[0] == "!" or (without_slash and text[0] == "^")
    text = text[negated:]
    items, place = set(), 0
    while place < len(text):
        low = high = text[place]
        if text[place + 1 : place + 2] == "-" and place + 2 < len(text):
            high = text[place + 2]
            place += 2
        place += 1
        if low <= high:
            items.add(f"{re.escape(low)}-{re.escape(high)}")
    slash = "(?!/)" if without_slash else ""
    if not items:
        return f"{slash}(?:.|\n)" if negated else "(?!)"
    return f"{slash}[{'^' * negated}{''.join(sorted(items))}]"
