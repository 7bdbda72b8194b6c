"""Fingerprints: names of findings that survive edits around them, for baselines and code scanning.

It is made of the rule, the operator, the module (its layers' numbers left out), the phase, the
function, and the statement with the names of variables left out (of a library's code the line).  It
is not made of the file, the line's number, the release or the counts: moving or reformatting the
line, renaming a variable or adding a layer keeps it, another operator, another call or another
function changes it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from opcheck.common.text import any_layer, normalised_code
from opcheck.model.records import Finding, GroupLocation

#: Part of each fingerprint, so that a change of the recipe is not mistaken for a change of findings.
VERSION = "opcheck/2"

#: A number in a message, with its unit or noun: they change from run to run.
_QUANTITY = re.compile(r"(?<![\w-])\d[\d.,]*(?: [A-Za-z]+)?")


def fingerprints(findings: Iterable[Finding]) -> tuple[tuple[str, ...], ...]:
    """Return for each finding one fingerprint a location, in order; for a finding without locations, one.

    All fingerprints differ: where several would be equal, the second ends in ``-2``.
    """
    seen: Counter[str] = Counter()

    def own(finding: Finding, place: GroupLocation | None) -> str:
        digest = fingerprint(finding, place)
        seen[digest] += 1
        return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"

    return tuple(
        tuple(own(finding, place) for place in finding.locations or (None,)) for finding in findings
    )


_Kind = TypeVar("_Kind", bound=Finding)


def add_fingerprints(findings: Iterable[_Kind]) -> Iterator[_Kind]:
    """Return the findings of a report, each with its fingerprints."""
    together = tuple(findings)
    for finding, own in zip(together, fingerprints(together), strict=True):
        has_them = finding.fingerprints == own
        yield finding if has_them else msgspec.structs.replace(finding, fingerprints=own)


def fingerprint(finding: Finding, place: GroupLocation | None) -> str:
    """Return 32 hexadecimal digits for a finding at a location."""
    # Without an operator, only the message distinguishes the finding from others of its rule.
    about = finding.op or without_quantities(finding.message)
    parts = [VERSION, finding.rule, about]
    if place is not None:
        parts += [place.phase, any_layer(place.module), *_spell_place(place)]
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:32]


def _spell_place(place: GroupLocation) -> tuple[str, ...]:
    """Return the bare name of the function (Python 3.10 has only that), and the statement or line."""
    if not place.line:
        return ()
    return (place.function.rpartition(".")[2], normalised_code(place.statement or place.text))


def without_quantities(message: str) -> str:
    """Replace the numbers of a message, with their units: ``torch #; # there and back``."""
    return _QUANTITY.sub("#", message)
