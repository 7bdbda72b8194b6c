"""Pieces of LLVM's assembly whose words are filled in; ``templates.ll`` has them by their names."""

import re
from pathlib import Path
from string import Template

from opcheck.common import documents

_COMMENT = re.compile(r"^(?:; .*)?\n", re.MULTILINE)
_PIECE = re.compile(r"^;; (?P<name>\S+)\n(?P<text>(?:(?!;;).*\n)*)", re.MULTILINE)
#: The pieces by their names, without the line break at their ends.
TEMPLATES = {
    piece["name"]: Template(piece["text"].rstrip("\n"))
    for piece in _PIECE.finditer(_COMMENT.sub("", documents.read_text(Path(__file__).with_name("templates.ll"))))
}


def fill(name: str, /, **words: object) -> str:
    """Return a piece with its words filled in."""
    return TEMPLATES[name].substitute(words)
