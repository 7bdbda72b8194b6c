"""The answer to ``opcheck history`` as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcheck.render import wording
from opcheck.render.document import Block, Heading, Lines, Table
from opcheck.render.wording import NOT_CHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.lookup.history import HistoryAnswer, Step

_CHANGES = {"first": "", "better": "better", "worse": "worse", "same": "", "removed": "removed"}


def document(answer: HistoryAnswer) -> Iterator[Block]:
    """Make the page: a table of steps for each overload."""
    dtype = f", {answer.dtype}" if answer.dtype else ""
    yield Heading(f"{answer.op}: history on macOS {answer.macos}{dtype}", 1)
    for overload in answer.overloads:
        if len(answer.overloads) > 1 or overload.name != answer.op:
            yield Heading(overload.name)
        rows = [row for step in overload.steps for row in _rows(step)]
        yield Table(("torch", "status", "", "what changed it"), tuple(rows))
    lists = answer.op_lists
    yield Lines((f"{NOT_CHECKED} Op lists {lists['digest']}, newest torch {lists['newest']}.",))


def _rows(step: Step) -> Iterator[tuple[str, ...]]:
    """Make a row for the step, and a row below it for each further change."""
    status = "no such overload" if step.change == "removed" else ""
    status = status or wording.label(step.status, step.kind)
    changed = list(step.changed) if step.change != "removed" else []
    if step.change != "first" and step.dtypes:
        differing = wording.by_state(step.dtypes)
        changed.append(f"now {differing}")
    first, *others = changed or [""]
    yield step.torch, status, _CHANGES[step.change], first
    for text in others:
        yield "", "", "", text
