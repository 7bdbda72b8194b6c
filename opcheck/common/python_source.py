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
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if encoding not in _REFUSED:
            return content.decode(encoding)
        message = f"the encoding {encoding} is for host names"
    except (SyntaxError, LookupError) as error:
        message = str(error)
    raise ValueError(message)


def split_lines(text: str) -> list[str]:
    r"""Split a program into lines, which end at ``\n``, ``\r\n`` or ``\r``, and nowhere else.

    These are what CPython's tokenizer translates to a newline (Parser/tokenizer.c, translate_newlines).
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
