"""Reads Dynamo's records of a compilation: graphs, breaks, guards that no longer held, frames that it skipped."""

import re
import traceback
from collections import Counter
from typing import Any

from msgspec.structs import replace

from opcheck.common.text import error_text, error_type
from opcheck.features.compile.compile_records import CompileFailure, GraphBreak, Recompile
from opcheck.tracing.source_locations import display_path, locate_in_stack, locate_in_text, locate_raise
from opcheck.tracing.torch_private import compilation

_GB = re.compile(r"gb(?P<number>\d{4})\.html")
_COMMENT = re.compile(r"\s{2,}#.*", re.DOTALL)
_HINT = re.compile(r"^\s*Hint: (?P<hint>.+)$", re.MULTILINE)
_KINDS = {"InvalidBackend": "backend", "Unsupported": "graph_break", "UserError": "graph_break"}


def count_skipped() -> int:
    """Return how many frames Dynamo looked at and did not compile."""
    frames = compilation.counters()["frames"]
    return max(0, int(frames["total"]) - int(frames["ok"]))


def recompiles() -> tuple[Recompile, ...]:
    """Return the guards that no longer held."""
    counted = Counter(_guard(metric) for metric in compilation.compilation_metrics())
    counted.pop("", None)
    return tuple(Recompile(guard=guard, count=count) for guard, count in counted.items())


def _guard(metric: Any) -> str:
    # What comes before the guard is the id of the frame and of its compilation.
    reason = str(getattr(metric, "recompile_reason", None) or "")
    guard = reason.partition(": ")[2] or reason
    # What follows is the stack that made the guard, with the machine's paths; the line before it is the user's.
    guard = guard.partition("User stack trace:")[0]
    # Dynamo writes the user's line behind it as a comment, with the file's path cut at the left.
    return _COMMENT.sub("", guard).strip()


def breaks() -> tuple[GraphBreak, ...]:
    """Return where the program left the graph."""
    counted: Counter[GraphBreak] = Counter()
    for reason in compilation.graph_breaks():
        graph_break = GraphBreak(
            reason=reason.reason.splitlines()[0].strip(),
            id=_id(reason.reason),
            hints=tuple(match["hint"] for match in _HINT.finditer(reason.reason)),
            location=locate_in_stack(reason.user_stack),
        )
        counted[graph_break] += 1
    return tuple(replace(graph_break, count=count) for graph_break, count in counted.items())


def _id(text: str) -> str:
    number = _GB.search(text)
    return f"GB{number['number']}" if number else ""


def failure(error: BaseException) -> CompileFailure:
    """Return what was raised, by its first line; where it has none, by where it was raised."""
    text = error_text(error)
    name = error_type(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not first:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        first = f"no message, raised in {frame.name} of {display_path(frame.filename)}"
    # The rest of it is the dispatcher's advice to users of all backends (c10/core/impl, "Could not run").
    first = first.partition(". This could be because the operator")[0]
    number = _id(text)
    return CompileFailure(
        kind=_KINDS.get(name, "compile"),
        message=f"{name}{f' ({number})' if number else ''}: {first}"[:500],
        location=locate_in_text(text) or locate_raise(error),
    )
