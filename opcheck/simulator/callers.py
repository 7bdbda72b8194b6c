"""Classify the code that queries Python about the Mac: the program's, an installed library's, or torch's own.

What a Mac answers depends on it.  torch's own Python (and ours) is that of the installed torch: it must see what it was
written for.  The standard library asks on behalf of whoever called it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

if TYPE_CHECKING:
    from types import CodeType, FrameType

    Kind = Literal["program", "library", "own"]

#: functorch is a part of torch's distribution, torchgen too.
_OWN = tuple(
    str(path) + os.sep
    for path in (
        Path(__file__).parents[1],
        *(Path(torch.__file__).parents[1] / name for name in ("torch", "functorch", "torchgen")),
    )
)
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
#: where packages are installed: an environment may take them from folders of another one
_SITE = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


class Caller(NamedTuple):
    """The innermost code outside the standard library."""

    kind: Kind
    file: str
    line: int

    @property
    def package(self) -> str:
        """The top-level package of a library; empty for a program's code."""
        for folder in _SITE:
            if folder in self.file:
                return Path(self.file.rpartition(folder)[2]).parts[0].removesuffix(".py")
        return ""

    @property
    def place(self) -> str:
        """The file and line; for a library, without the folder of the environment."""
        folder = next((folder for folder in _SITE if folder in self.file), None)
        file = self.file.rpartition(folder)[2] if folder else Path(self.file).name
        return f"{Path(file).as_posix()}:{self.line}"


#: of each file that asked (code objects of two files may be equal): whose it is; None: the standard library's
_kinds: dict[str, Kind | None] = {}
_NOBODY = Caller("own", "", 0)


def caller(depth: int = 1) -> Caller:
    """Return who called the calling function; ``depth`` counts the frames above it that are opcheck's."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        kind = kind_of(frame.f_code)
        if kind is not None:
            return Caller(kind, frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return _NOBODY


def kind_of(code: CodeType) -> Kind | None:
    """Return whose code a code object is; None for the standard library's, and for code without a file."""
    file = code.co_filename
    if file not in _kinds:
        _kinds[file] = _kind(file)
    return _kinds[file]


def _kind(file: str) -> Kind | None:
    if file.startswith(_OWN):
        return "own"
    if any(folder in file for folder in _SITE):
        return "library"
    if file.startswith((_STDLIB, "<frozen", "<string>")):
        return None
    return "program"
