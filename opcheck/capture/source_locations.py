"""Whose code a file is, and how a line of it is written in a report."""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import torch

from opcheck.capture.statements import statement
from opcheck.common.files import is_file
from opcheck.model.records import SourceLocation

if TYPE_CHECKING:
    from types import CodeType

_TRACE_ENTRY = re.compile(
    r'File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>\S+)(?:\n {4}(?P<text>[^\n]+))?'
)
#: A path of another machine below its installed packages, and one of its Python or its torch.
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\](?P<path>.+)", re.DOTALL)
_NOT_USERS = re.compile(
    r".*[/\\](?:site|dist)-packages[/\\]torch[/\\]"
    r"|.*[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages[/\\])",
    re.DOTALL,
)
_TORCH = str(Path(torch.__file__).parent) + os.sep
_OPCHECK = str(Path(__file__).parents[1]) + os.sep
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = tuple({sysconfig.get_paths()[name] + os.sep for name in ("purelib", "platlib")})


def is_user_code(filename: str) -> bool:
    """Whether a file is neither torch's, nor ours, nor the standard library's."""
    return not (
        filename.startswith((_TORCH, _OPCHECK, "<"))
        or (filename.startswith(_STDLIB) and not filename.startswith(_SITE))
    )


def is_own_code(filename: str) -> bool:
    """Whether a file is the program's own: user code that is not installed."""
    return is_user_code(filename) and not filename.startswith(_SITE)


def locate(site: tuple[CodeType, int] | None) -> SourceLocation | None:
    """The location record of a code object and a line."""
    if site is None:
        return None
    code, line = site
    return SourceLocation(
        file=display_path(code.co_filename),
        line=line,
        function=code.co_qualname if hasattr(code, "co_qualname") else code.co_name,
        text=linecache.getline(code.co_filename, line).strip(),
        statement=_statement(code.co_filename, line),
    )


def innermost(stack_trace: str | None) -> SourceLocation | None:
    """The innermost line that is neither torch's nor ours in a stack trace as torch.fx keeps it.

    A program that was exported on another machine has that machine's paths, and the text of the line as it was.  A
    file may name any path, so nothing of one is shown that the trace does not hold.
    """
    for match in reversed([*_TRACE_ENTRY.finditer(stack_trace or "")]):
        file, line = match["file"], int(match["line"])
        if is_user_code(file) and not _NOT_USERS.match(file):
            text = (match["text"] or "").strip()
            is_here = file.endswith(".py") and is_file(file)
            here = linecache.getline(file, line).strip() if text and is_here else ""
            return SourceLocation(
                file=display_path(file),
                line=line,
                function=match["function"],
                text=text,
                statement=_statement(file, line) if text and text == here else "",
            )
    return None


def _statement(filename: str, line: int) -> str:
    """Of the user's own code alone: what is installed is not reformatted, and long to parse."""
    return "" if filename.startswith(_SITE) else statement(filename, line)


def display_path(filename: str) -> str:
    """A path that is the same on every machine: relative to site-packages or to the working directory."""
    for root in (*_SITE, str(Path.cwd()) + os.sep):
        if filename.startswith(root):
            return Path(filename[len(root) :]).as_posix()
    installed = _INSTALLED.match(filename)
    if installed:
        path = PurePosixPath(installed["path"].replace("\\", "/"))
        if not path.is_absolute() and ".." not in path.parts:
            return str(path)
    return Path(filename).name
