"""Which errors the program handles itself: the try statements that its calling frames are in."""

import ast
import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from opcheck.common.python_source import parse, source_lines
from opcheck.tracing.source_locations import is_user_code

#: What runs the program; its own handlers are further out.
_RUNS = str(Path(__file__).parents[1] / "capture")


def caught_names(frame: FrameType | None) -> frozenset[str]:
    """Return the names of the types whose errors this frame, or one that called it, handles.

    ``except:`` handles ``BaseException``.  A handler that ends by raising again handles nothing.
    """
    names: frozenset[str] = frozenset()
    while frame is not None:
        filename = frame.f_code.co_filename
        for first, last, name in _handlers(filename):
            if first <= frame.f_lineno <= last:
                names |= {name}
        if filename.startswith(_RUNS):
            break
        frame = frame.f_back
    return names


def is_handled(kind: type[BaseException], frame: FrameType | None) -> bool:
    """Return whether this frame of the program, or one that called it, goes on after an error of this type."""
    return not caught_names(frame).isdisjoint(each.__name__ for each in kind.__mro__)


@functools.cache
def _handlers(filename: str) -> tuple[tuple[int, int, str], ...]:
    """Return first and last line, and the name of a type that is caught there, of a file of the program."""
    if is_user_code(filename):
        with contextlib.suppress(SyntaxError):  # a cell of a notebook, a file that has changed
            return tuple(_find(parse("".join(source_lines(filename)))))
    return ()


def _find(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try | ast.With):
            continue
        names = _handler_types(node) if isinstance(node, ast.Try) else _suppress_types(node)
        last = node.body[-1].end_lineno or node.body[-1].lineno
        for name in names:
            yield node.body[0].lineno, last, name


def _handler_types(node: ast.Try) -> Iterator[str]:
    for handler in node.handlers:
        if isinstance(handler.body[-1], ast.Raise):
            continue
        match handler.type:
            case None:
                yield BaseException.__name__
            case ast.Tuple(elts=types):
                yield from map(_last_name, types)
            case kind:
                yield _last_name(kind)


def _suppress_types(node: ast.With) -> Iterator[str]:
    for item in node.items:
        match item.context_expr:
            case ast.Call(func=function, args=types) if _last_name(function) == "suppress":
                yield from map(_last_name, types)


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]
