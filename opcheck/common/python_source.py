"""Python source as Python reads it: bytes to text, and text to lines.

``str.splitlines`` also ends a line at a form feed, at U+2028 and at six more characters that mean nothing to Python's
tokenizer.  Lines that are counted so do not agree with the line numbers of a syntax tree.
"""

import ast
import functools
import io
import linecache
import operator
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opcheck.common import documents

#: Codecs of host names.  Their decoders take time that grows with the square of the length (Lib/encodings/punycode.py,
#: insertion_sort), and no one writes a program in them.
_REFUSED = {"idna", "punycode"}
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
#: Bytes of a source that is quoted; parts of an entry of linecache with lines, and no loader.
_LARGEST, _WITH_LINES = 16 << 20, 4

#: What computes each comparison of an expression.
COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}


def parse(content: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """Parse a program; the parser's warnings of escapes are not shown.

    Raises:
        SyntaxError: it is no program, or nests deeper than the parser follows.
    """
    tree = _parse(content, filename, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def parse_expression(text: str) -> ast.expr:
    """Parse one expression as ``parse`` does.

    Raises:
        SyntaxError: as ``parse``.
    """
    tree = _parse(text, "<unknown>", "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _parse(content: str | bytes, filename: str, mode: str) -> ast.AST:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content, filename, mode)
    except (ValueError, RecursionError, MemoryError) as error:  # a null character, thousands of levels
        raise SyntaxError(str(error) or "nested too deeply") from error


def decode(content: bytes) -> str:
    """Decode a program by the encoding that its first lines name.

    Raises:
        ValueError: Python does not know the encoding, or the bytes do not fit it.
    """
    try:
        return content.decode(encoding(content))
    except LookupError as error:
        raise ValueError(str(error)) from error


def encoding(content: bytes) -> str:
    """Return the encoding that the first lines of a program name; ``utf-8-sig`` where it has a byte order mark.

    Raises:
        ValueError: Python does not know the encoding, or no program is written in it.
    """
    try:
        # Python 3.14 refuses null bytes here, and each Python where it parses the text.
        name, _ = tokenize.detect_encoding(io.BytesIO(content.replace(b"\0", b" ")).readline)
    except (SyntaxError, LookupError) as error:
        raise ValueError(str(error)) from error
    if name in _REFUSED:
        raise ValueError(f"the encoding {name} is for host names")
    return name


def split_lines(text: str) -> list[str]:
    r"""Split a program into lines, which end at ``\n``, ``\r\n`` or ``\r``, and nowhere else.

    These are what CPython's tokenizer translates to a newline (Parser/tokenizer.c, translate_newlines).
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def lines_with_endings(text: str) -> list[str]:
    """Split a program into the lines of ``split_lines``, which keep their newlines."""
    return _LINE.findall(text)


def source_lines(filename: str) -> list[str]:
    """Return the lines of a source as ``linecache.getlines`` does; none unless it is a regular file.

    linecache opens whatever has the name: a named pipe has no end.  A file that its module's loader has, or that was
    put into the cache, is taken from there.
    """
    if len(linecache.cache.get(filename, ())) < _WITH_LINES and not filename.startswith("<"):
        folders = [] if Path(filename).is_absolute() else sys.path
        for path in (filename, *(os.path.join(folder, filename) for folder in folders)):  # noqa: PTH118
            try:
                content = documents.read(path, _LARGEST)
                lines = [f"{line}\n" for line in split_lines(decode(content))]
            except documents.DocumentError as error:
                if error.missing:
                    continue
                return []
            except ValueError:  # it cannot be decoded
                return []
            linecache.cache[filename] = (len(content), None, lines, path)
            break
        else:
            # Only the module's loader may have it now.
            return linecache.getlines(filename) if filename in linecache.cache else []
    return linecache.getlines(filename)


@functools.cache
def parse_source(filename: str) -> ast.Module:
    """Parse the source that ``source_lines`` returns; empty if it cannot be parsed: a cell of a notebook, say."""
    try:
        return parse("".join(source_lines(filename)))
    except SyntaxError:
        return ast.Module([], [])


def source_line(filename: str, line: int) -> str:
    """Return a line of a source, counted from 1, without its spaces; empty where there is none."""
    lines = source_lines(filename)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
