"""Contradictions -> proposed statements for the op lists, in the form of op_lists/limitations.

A person judges them: what a Mac did with some inputs is evidence, not yet a rule.  ``opcheck lists merge`` reviews them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from opcheck.common.errors import UsageError
from opcheck.common.text import plural
from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_events import NOT_NAMED
from opcheck.device.verify import Pair, Verification

#: What was observed -> the effect of a statement that says so.
_EFFECTS = {"unsupported": "raises", "fallback": "falls_back"}
_DONE = {"unsupported": "raised", "fallback": "ran on the CPU", "native": "ran on mps"}


def proposed(verification: Verification, lists: OpLists) -> str:
    """A file of proposed limitations, and of what has to be judged besides, as comments.

    Raises:
        UsageError: there is nothing to propose.
    """
    entries = list(_entries(verification, lists))
    better = [
        contradiction
        for contradiction in verification.contradictions
        if contradiction.observed not in _worse(contradiction)
    ]
    if not entries and not better:
        raise UsageError(
            "there is nothing to propose: nothing contradicts the prediction",
            context=f"{verification.prediction} against {verification.observation}",
            hint="leave --propose out",
        )
    body = yaml.safe_dump(
        {"schema": 1, "limitations": entries}, sort_keys=False, allow_unicode=True, width=110
    )
    return "".join([*_head(verification), *_comments(better), body])


def _worse(one: Pair) -> tuple[str, ...]:
    """What would be worse than what was predicted: only that can be a limitation."""
    return {"native": ("fallback", "unsupported"), "fallback": ("unsupported",)}.get(
        one.predicted, ()
    )


def _head(found: Verification) -> Iterator[str]:
    yield "# Proposed by opcheck verify; a person judges each entry, and widens or narrows its span.\n"
    yield f"# Observed: {_machine(found)}.\n"


def _comments(better: Sequence[Pair]) -> Iterator[str]:
    for pair in better:
        yield (
            f"# {pair.op} at {pair.line or 'a line that is not told'}: predicted {pair.predicted}, "
            f"it {_DONE.get(pair.observed, pair.observed)}"
            + (f"; look at {', '.join(pair.limitations)}" if pair.limitations else "")
            + "\n"
        )


def _entries(found: Verification, lists: OpLists) -> Iterator[dict[str, Any]]:
    taken = set(lists.statements.by_id)
    alike: dict[tuple[str, str, str], list[Pair]] = {}
    for contradiction in found.contradictions:
        if (
            contradiction.observed in _worse(contradiction)
            and contradiction.op != NOT_NAMED
            and "::" in contradiction.op
        ):
            alike.setdefault(
                (contradiction.op, contradiction.observed, contradiction.prints), []
            ).append(contradiction)
    for (op, status, prints), pairs in alike.items():
        name = _free(_slug(op, status), taken)
        taken.add(name)
        dtypes = sorted({dtype for pair in pairs for dtype in pair.dtypes})
        release = Version.parse(found.torch)
        entry: dict[str, Any] = {
            "id": name,
            "ops": [op],
            "effect": _EFFECTS[status],
            "torch": {"since": str(release), "until": _next(release, lists)},
            **({"dtypes": dtypes} if dtypes else {}),
            "when": "observed with some inputs; which of their dtypes, shapes or values decide is not known",
            **(_error(status, prints) if prints else {}),
            "summary": f"{op} was predicted {pairs[0].predicted} and {_DONE[status]} on a Mac.",
            "evidence": [
                {
                    "kind": "measured",
                    "torch": str(release),
                    "where": _machine(found),
                    "detail": f"{plural(sum(pair.count for pair in pairs), 'time')} at "
                    + ", ".join(sorted({pair.line or "a line that is not told" for pair in pairs})),
                }
            ],
        }
        yield entry


def _next(release: Version, lists: OpLists) -> str | None:
    """The release after it, up to which nothing more is claimed; None: it is the newest."""
    lines = (Version.parse(one.line) for one in lists.releases)
    return next((str(line) for line in sorted(lines) if line > release), None)


def _error(status: str, prints: str) -> dict[str, Any]:
    kind = "UserWarning" if status == "fallback" else _type(prints)
    return {"error": {"type": kind, "text": prints.removeprefix(f"{kind}: ")}}


def _type(prints: str) -> str:
    if "failed assertion" in prints or "LLVM ERROR" in prints:
        return "SIGABRT"
    if "not currently implemented" in prints:
        return "NotImplementedError"
    return "TypeError" if "dtype" in prints else "RuntimeError"


def _machine(found: Verification) -> str:
    build = f" ({found.build})" if found.build else ""
    machine = found.machine or "a machine that the log does not tell"
    return f"{machine}, macOS {found.macos}{build}, torch {found.torch}"


def _slug(op: str, status: str) -> str:
    words = re.findall(r"[a-z0-9]+", op.partition("::")[2].lower())
    return "-".join(("seen", *words, {"unsupported": "raises", "fallback": "cpu"}[status]))


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
