"""Separates user code from libraries, finds the user's line that runs, and names it for reports."""

import ast
import contextlib
import functools
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from opcheck.common.files import is_file
from opcheck.common.python_source import parse_source, source_line
from opcheck.model.records import SourceLocation

#: A code object and a line of it; None: no line of the user's.
Site = tuple[CodeType, int] | None

_TRACE_ENTRY = re.compile(
    r'File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>\S+)(?:\n {4}(?P<text>[^\n]+))?'
)
#: A path of another machine below its installed packages, and a path of its Python or its torch.
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


# -- whose code a file is ---------------------------------------------------------------------------------------------


def is_user_code(filename: str) -> bool:
    """Return whether a file is neither torch's, nor opcheck's, nor the standard library's."""
    return not (
        filename.startswith((_TORCH, _OPCHECK, "<"))
        or (filename.startswith(_STDLIB) and not filename.startswith(_SITE))
    )


def is_own_code(filename: str) -> bool:
    """Return whether a file is the program's own: user code that is not installed."""
    return is_user_code(filename) and not filename.startswith(_SITE)


def display_path(filename: str) -> str:
    """Return a path that is the same on every machine: relative to site-packages or to the working directory."""
    roots = [*_SITE]
    with contextlib.suppress(FileNotFoundError):  # the program deleted its working directory
        roots.append(str(Path.cwd()) + os.sep)
    for root in roots:
        if filename.startswith(root):
            return Path(filename[len(root) :]).as_posix()
    installed = _INSTALLED.match(filename)
    if installed:
        path = PurePosixPath(installed["path"].replace("\\", "/"))
        if not path.is_absolute() and ".." not in path.parts:
            return str(path)
    return Path(filename).name


# -- the line that runs -----------------------------------------------------------------------------------------------


class UserFrames:
    """Finds the innermost frame of the user's code; remembers for each code object whose it is."""

    def __init__(self, caller: CodeType | None = None) -> None:
        """Remember nothing yet.

        Args:
            caller: calls the program; this frame and those outside of it are not the program's.
        """
        self._caller = caller
        self._is_user: dict[CodeType, bool] = {}

    def add(self, codes: Iterable[CodeType]) -> None:
        """Count these code objects as the user's, whatever their files are."""
        self._is_user.update(dict.fromkeys(codes, True))

    def innermost(self, frame: FrameType | None) -> Site:
        """Return the innermost line of the user's, from this frame outwards."""
        cached, caller = self._is_user, self._caller
        while frame is not None:
            code = frame.f_code
            if code is caller:
                return None
            is_user = cached.get(code)
            if is_user is None:
                is_user = cached[code] = is_user_code(code.co_filename)
            if is_user:
                return code, frame.f_lineno
            frame = frame.f_back
        return None

    def inside(self, frame: FrameType | None) -> Iterator[CodeType]:
        """Yield the code of the frames between this frame and the user's line, this one included."""
        site = self.innermost(frame)
        while frame is not None and (site is None or frame.f_code is not site[0]):
            yield frame.f_code
            frame = frame.f_back


def raising_site(error: BaseException) -> Site:
    """Return the innermost line, of user code or of a library other than torch, that an exception came through."""
    sites = ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
    return next((site for site in reversed([*sites]) if is_user_code(site[0].co_filename)), None)


# -- how a report names a line ----------------------------------------------------------------------------------------


def locate(site: Site) -> SourceLocation | None:
    """Return the record of a line that runs, with the statement around it."""
    if site is None:
        return None
    code, line = site
    file, function = code.co_filename, code.co_qualname if hasattr(code, "co_qualname") else code.co_name
    return _location(file, line, function, source_line(file, line), _statement(file, line))


def _location(file: str, line: int, function: str, text: str, statement: str = "") -> SourceLocation:
    return SourceLocation(file=display_path(file), line=line, function=function, text=text, statement=statement)


def locate_raise(error: BaseException) -> SourceLocation | None:
    """Return the record of the line that an exception came through (``raising_site``), as a traceback writes it."""
    return locate_in_stack(traceback.extract_tb(error.__traceback__))


def locate_in_stack(stack: Iterable[traceback.FrameSummary]) -> SourceLocation | None:
    """Return the record of the innermost line of user code in a stack that lists its outermost frame first."""
    for frame in reversed([*stack]):
        if is_user_code(frame.filename):
            return _location(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip())
    return None


def locate_in_text(stack_trace: str | None) -> SourceLocation | None:
    """Return the record of the innermost line of user code in a stack trace as torch.fx keeps it.

    A program that was exported on another machine has that machine's paths, and the text of the line as it was.  A
    file may name any path, so the record contains nothing of such a file that the stack trace does not have.
    """
    for match in reversed([*_TRACE_ENTRY.finditer(stack_trace or "")]):
        file, line = match["file"], int(match["line"])
        if is_user_code(file) and not _NOT_USERS.match(file):
            text = (match["text"] or "").strip()
            is_here = file.endswith(".py") and is_file(file)
            here = source_line(file, line) if text and is_here else ""
            return _location(
                file, line, match["function"], text, _statement(file, line) if text and text == here else ""
            )
    return None


def describe_raise(error: BaseException) -> str:
    """Return ``file.py:12 in __init__: self.head = Head(width)`` for the innermost line of user code.

    Where no line is the user's own, the innermost line of a library; empty where there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{display_path(error.filename)}:{error.lineno}: {(error.text or '').strip()}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)]
    if not frames:
        return ""
    frame = ([frame for frame in frames if is_own_code(frame.filename)] or frames)[-1]
    return f"{display_path(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"


# -- the statement around a line --------------------------------------------------------------------------------------


def _statement(filename: str, line: int) -> str:
    """Return the statement in the user's own code: installed code is not reformatted, and takes long to parse."""
    return "" if filename.startswith(_SITE) else statement(filename, line)


@functools.lru_cache(maxsize=4096)
def statement(filename: str, line: int) -> str:
    """Return the innermost statement around a line, on one line, without comments; of a block only its head.

    It reads the same however the code is formatted, so a fingerprint can include it.  Empty: the file cannot be parsed,
    or no statement is there.
    """
    around = [entry for entry in _statements(filename) if entry[0] <= line <= entry[1]]
    # The innermost begins last.
    return _unparse(max(around, key=lambda entry: entry[0])[2]) if around else ""


@functools.cache
def _statements(filename: str) -> tuple[tuple[int, int, ast.stmt], ...]:
    nodes = ast.walk(parse_source(filename))
    return tuple((node.lineno, _last_line(node), node) for node in nodes if isinstance(node, ast.stmt))


def _last_line(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _unparse(node: ast.stmt) -> str:
    if not hasattr(node, "body"):
        return ast.unparse(node)
    blocks = (ast.stmt, ast.ExceptHandler, ast.match_case)
    head = [child for child in ast.iter_child_nodes(node) if not isinstance(child, blocks)]
    return " ".join([type(node).__name__, *map(ast.unparse, head)])


# -- Which errors the program handles itself: the try statements that its calling frames are in --


#: What runs the program; its own handlers are further out.
_RUNS = str(Path(__file__).parents[1] / "capture")


class _Guard(NamedTuple):
    """The lines of a block, and the types that its handlers catch, each with whether the program goes on after it."""

    first: int
    last: int
    handlers: tuple[tuple[frozenset[str], bool], ...]


def caught_names(frame: FrameType | None) -> frozenset[str]:
    """Return the names of the types that handlers of this frame, or of one that called it, catch for good.

    ``except:`` handles ``BaseException``.  A handler that ends by raising again handles nothing.
    """
    each = (handler for guard in _guards(frame) for handler in guard.handlers)
    return frozenset().union(*(names for names, goes_on in each if goes_on))


def is_handled(kind: type[BaseException], frame: FrameType | None) -> bool:
    """Return whether this frame of the program, or one that called it, goes on after an error of this type.

    Of each statement the first handler that catches the type decides.
    """
    own = {each.__name__ for each in kind.__mro__}
    return any(next((goes_on for names, goes_on in guard.handlers if names & own), False) for guard in _guards(frame))


def _guards(frame: FrameType | None) -> Iterator[_Guard]:
    """Yield the statements with handlers that this frame and those that called it are in."""
    while frame is not None:
        filename = frame.f_code.co_filename
        yield from (guard for guard in _handlers(filename) if guard.first <= frame.f_lineno <= guard.last)
        if filename.startswith(_RUNS):
            break
        frame = frame.f_back


@functools.cache
def _handlers(filename: str) -> tuple[_Guard, ...]:
    """Return the statements with handlers of a file of the program."""
    return tuple(_find(parse_source(filename))) if is_user_code(filename) else ()


def _find(tree: ast.Module) -> Iterator[_Guard]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.With):
            handlers = _list_caught(node) if isinstance(node, ast.Try) else _list_suppressed(node)
            last = node.body[-1].end_lineno or node.body[-1].lineno
            yield _Guard(node.body[0].lineno, last, tuple(handlers))


def _list_caught(node: ast.Try) -> Iterator[tuple[frozenset[str], bool]]:
    for handler in node.handlers:
        match handler.type:
            case None:
                names = frozenset({BaseException.__name__})
            case ast.Tuple(elts=types):
                names = frozenset(map(_last_name, types))
            case kind:
                names = frozenset({_last_name(kind)})
        yield names, not isinstance(handler.body[-1], ast.Raise)


def _list_suppressed(node: ast.With) -> Iterator[tuple[frozenset[str], bool]]:
    for item in node.items:
        match item.context_expr:
            case ast.Call(func=function, args=types) if _last_name(function) == "suppress":
                yield frozenset(map(_last_name, types)), True


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]
