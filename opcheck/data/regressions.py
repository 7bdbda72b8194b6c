"""Regressions of a release: operators that ran without the fallback variable and no longer do."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from opcheck.data.registrations import OpLists
from opcheck.data.strict_yaml import FileProblem, read_entries
from opcheck.model.records import Record

FILE = "regressions.yaml"

#: The rank of each outcome, best first; a composite is as good as the operators that it calls.
_ORDER = {
    ("native", None): 0,
    ("composite", None): 1,
    ("fallback", "always"): 2,
    ("fallback", "env"): 3,
    ("unsupported", None): 4,
    ("unknown", None): 5,
}

_RAN = {0, 2}


class Regression(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of regressions.yaml."""

    op: str
    #: the first release line without it.
    torch: str
    #: the registration values before and from that line on; "absent" where there is no overload.
    before: str
    after: str
    #: what happened, for a user of the operator.
    what: str


def list_regressions(directory: Path) -> tuple[Regression, ...]:
    """Return the entries of the list, in the order of the file.

    Raises:
        OpListError: the list is damaged.
    """
    entries, document = read_entries(directory / FILE, "regressions", Regression)
    document.require_sound(directory / FILE, "correct the file; opcheck lists lint checks it")
    return tuple(entry for _, entry in entries)


def find_lost(lists: OpLists) -> Iterator[tuple[str, str, str, str]]:
    """Yield (operator, release line, value before, value from then on) wherever an operator got worse.

    Only operators that ran without the variable can lose something.
    """
    lines = [release.line for release in lists.releases]
    for op in sorted(lists.names()):
        for line, later in pairwise(lines):
            before, after = lists.resolve(op, line), lists.resolve(op, later)
            rank = _ORDER[before.status, before.kind]
            if rank in _RAN and _ORDER[after.status, after.kind] > rank:
                yield op, later, before.value or "absent", after.value or "absent"


def lint_regressions(lists: OpLists, directory: Path) -> Iterator[FileProblem]:
    """Yield the regressions that the list lacks, and the listed regressions that do not exist."""
    entries, document = read_entries(directory / FILE, "regressions", Regression)
    yield from document.problems
    real = set(find_lost(lists))
    listed = set()
    for index, entry in entries:
        key = (entry.op, entry.torch, entry.before, entry.after)
        path = f"regressions.{index}"
        line = document.line(("regressions", index))
        if key not in real:
            yield FileProblem(
                FILE, line, path, f"{entry.op} lost nothing such in torch {entry.torch}"
            )
        elif key in listed:
            yield FileProblem(
                FILE, line, path, f"{entry.op} in torch {entry.torch} is listed twice"
            )
        listed.add(key)
    for op, torch, before, after in sorted(real - listed):
        message = f"{op} went from {before} to {after} in torch {torch}: say what happened"
        yield FileProblem(FILE, 0, "regressions", message)
