"""Errors of a Mac that the program handles itself: they are raised, so that its own handler runs."""

import sys

from opcheck.capture.child.recording.graph import op_call
from opcheck.capture.child.recording.tensor_log import RecordedCall
from opcheck.common.versions import Target
from opcheck.data import messages
from opcheck.data.registrations import load
from opcheck.model.records import OpCall
from opcheck.simulator.target_reads import TargetQueries
from opcheck.tracing.handlers import caught_names

_TYPES = {
    kind.__name__: kind
    for kind in (RuntimeError, TypeError, NotImplementedError, IndexError, ValueError)
}


class _CallOfProgram:
    """One call, which equals itself alone: its record is no key of a dictionary."""

    def __init__(self, record: OpCall) -> None:
        self.record = record


def raise_handled(ask: TargetQueries, call: RecordedCall) -> None:
    """Raise what a Mac raises at this call, where the program handles that type of error.

    Raises:
        RuntimeError, TypeError, NotImplementedError ...: as the target does.
    """
    names = caught_names(sys._getframe(2))
    refusal = ask(_find_error, _CallOfProgram(op_call(call))) if names else None
    if refusal is None:
        return
    kind = _TYPES.get(refusal[0], RuntimeError)
    if not names.isdisjoint(each.__name__ for each in kind.__mro__):
        raise kind(refusal[1])


def _find_error(target: Target, call: _CallOfProgram) -> tuple[str, str] | None:
    """Return the type and the text of what a Mac raises; None where it raises nothing that is known."""
    lists, record = load(), call.record
    if record.refusal is not None:
        return RuntimeError.__name__, record.refusal[1]
    statement = lists.matching(record, target).decisive
    if statement is not None and statement.effect == "raises" and statement.error is not None:
        return statement.error.type, messages.fill_text(statement.error.text, record)
    registered = lists.operators(str(target.torch))
    for op in (record.op, *(record.inner or ())):
        if registered.get(op) == "cpu_only" and not target.cpu_fallback:
            commit = lists.release(str(target.torch)).commit
            text = messages.not_implemented(op, target.torch, commit)
            return NotImplementedError.__name__, text
    return None
