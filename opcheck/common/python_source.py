"""Python source as Python reads it: bytes to text, and text to lines.

``str.splitlines`` also ends a line at a form feed, at U+2028 and at six more characters that mean nothing to Python's
tokenizer.  Lines that are counted so do not agree with the line numbers of a syntax tree.
"""

from __future__ import annotations

import io
import tokenize

#: Codecs of host names.  Their decoders take time that grows with the square of the length (Lib/encodings/punycode.py,
#: insertion_sort), and no one writes a program in them.
_REFUSED = {"idna", "punycode"}


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
        name, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except (SyntaxError, LookupError) as error:
        raise ValueError(str(error)) from error
    if name in _REFUSED:
        message = f"the encoding {name} is for host names"
        raise ValueError(message)
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
    lines: list[str] = []
    for line in text.split("\n"):
        parts = line.split("\r")
        # A carriage return before a newline belongs to it; one that stands alone ends a line itself.
        *ended, final = parts
        if len(parts) > 1 and not final:
            ended, final = ended[:-1], f"{ended[-1]}\r"
        lines += [f"{part}\r" for part in ended]
        lines.append(f"{final}\n")
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
