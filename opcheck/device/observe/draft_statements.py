"""Drafts statements for the op lists from contradictions, in the form of op_lists/limitations.

A person judges the drafts: what a Mac did with some inputs is evidence, not yet a rule.
``opcheck lists merge`` reviews them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from opcheck.common.errors import UsageError
from opcheck.common.text import plural
from opcheck.common.versions import Version
from opcheck.common.vocabulary import Status
from opcheck.data.registrations import OpLists
from opcheck.device.observe.mac_texts import NOT_NAMED
from opcheck.device.verify import Pair, Verification

#: by the observed status, the effect of a statement
_EFFECTS = {"unsupported": "raises", "fallback": "falls_back"}
#: by the predicted status, those that are worse: only they can be limitations
_WORSE = {"native": ("fallback", "unsupported"), "fallback": ("unsupported",)}
_DONE = {"unsupported": "raised", "fallback": "ran on the CPU", "native": "ran on mps"}


def draft_statements(verification: Verification, lists: OpLists) -> str:
    """Write a file of drafted limitations; where the Mac did better than predicted, a comment.

    Raises:
        UsageError: nothing contradicts the prediction.
    """
    entries = list(_entries(verification, lists))
    better = [
        pair
        for pair in verification.contradictions
        if pair.observed not in _WORSE.get(pair.predicted, ())
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


def _head(verification: Verification) -> Iterator[str]:
    yield "# Proposed by opcheck verify; a person judges each entry, and widens or narrows its "
    yield "span.\n"
    yield f"# Observed: {_machine(verification)}.\n"


def _comments(better: Sequence[Pair]) -> Iterator[str]:
    for pair in better:
        yield (
            f"# {pair.op} at {pair.line or 'an unknown line'}: predicted {pair.predicted}, "
            f"it {_DONE.get(pair.observed, pair.observed)}"
            + (f"; look at {', '.join(pair.limitations)}" if pair.limitations else "")
            + "\n"
        )


def _entries(verification: Verification, lists: OpLists) -> Iterator[dict[str, Any]]:
    taken = set(lists.statements.by_id)
    alike: dict[tuple[str, Status, str], list[Pair]] = {}
    for pair in verification.contradictions:
        worse = pair.observed in _WORSE.get(pair.predicted, ())
        if worse and pair.op != NOT_NAMED and "::" in pair.op:
            alike.setdefault((pair.op, pair.observed, pair.prints), []).append(pair)
    for (op, status, prints), pairs in alike.items():
        name = _free(_slug(op, status), taken)
        taken.add(name)
        dtypes = sorted({dtype for pair in pairs for dtype in pair.dtypes})
        release = Version.parse(verification.torch)
        yield {
            "id": name,
            "ops": [op],
            "effect": _EFFECTS[status],
            "torch": {"since": str(release), "until": _next(release, lists)},
            **({"dtypes": dtypes} if dtypes else {}),
            "when": (
                "observed with some inputs; which of their dtypes, shapes or values decide is not "
                "known"
            ),
            **(_error(status, prints) if prints else {}),
            "summary": f"{op} was predicted {pairs[0].predicted} and {_DONE[status]} on a Mac.",
            "evidence": [
                {
                    "kind": "measured",
                    "torch": str(release),
                    "where": _machine(verification),
                    "detail": f"{plural(sum(pair.count for pair in pairs), 'time')} at "
                    + ", ".join(sorted({pair.line or "an unknown line" for pair in pairs})),
                }
            ],
        }


def _next(release: Version, lists: OpLists) -> str | None:
    """The next release, where the claim ends; None for the newest release."""
    lines = (Version.parse(release.line) for release in lists.releases)
    return next((str(line) for line in sorted(lines) if line > release), None)


def _error(status: Status, prints: str) -> dict[str, Any]:
    kind = "UserWarning" if status == "fallback" else _type(prints)
    return {"error": {"type": kind, "text": prints.removeprefix(f"{kind}: ")}}


def _type(prints: str) -> str:
    if "failed assertion" in prints or "LLVM ERROR" in prints:
        return "SIGABRT"
    if "not currently implemented" in prints:
        return "NotImplementedError"
    return "TypeError" if "dtype" in prints else "RuntimeError"


def _machine(verification: Verification) -> str:
    build = f" ({verification.build})" if verification.build else ""
    machine = verification.machine or "a machine that the log does not name"
    return f"{machine}, macOS {verification.macos}{build}, torch {verification.torch}"


def _slug(op: str, status: Status) -> str:
    words = re.findall(r"[a-z0-9]+", op.partition("::")[2].lower())
    return "-".join(("seen", *words, {"unsupported": "raises", "fallback": "cpu"}[status]))


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
