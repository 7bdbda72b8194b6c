"""A name for a finding that outlives edits around it: what baselines and code scanning know it by.

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

import msgspec

from opcheck.common.text import any_layer, normalised_code
from opcheck.model.records import Finding, GroupLocation

#: Part of each fingerprint, so that a change of what it is made of does not pass for other findings.
VERSION = "opcheck/2"

#: A number in a message, with its unit or noun: they change from run to run.
_QUANTITY = re.compile(r"(?<![\w-])\d[\d.,]*(?: [A-Za-z]+)?")


def fingerprints(findings: Iterable[Finding]) -> tuple[tuple[str, ...], ...]:
    """Of each finding one fingerprint a location, in their order; of a finding without any, one.

    All are different: of several that would be the same, the second ends in ``-2``.
    """
    seen: Counter[str] = Counter()

    def own(finding: Finding, place: GroupLocation | None) -> str:
        digest = fingerprint(finding, place)
        seen[digest] += 1
        return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"

    return tuple(
        tuple(own(finding, place) for place in finding.locations or (None,)) for finding in findings
    )


def fingerprinted(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings of a report, each with its fingerprints."""
    together = tuple(findings)
    for finding, own in zip(together, fingerprints(together), strict=True):
        has_them = finding.fingerprints == own
        yield finding if has_them else msgspec.structs.replace(finding, fingerprints=own)


def fingerprint(finding: Finding, place: GroupLocation | None) -> str:
    """32 hexadecimal digits for a finding at one of its locations."""
    # A finding of no one operator has only its message to tell it from others of its rule.
    about = finding.op or without_quantities(finding.message)
    parts = [VERSION, finding.rule, about]
    if place is not None:
        parts += [place.phase, any_layer(place.module), *_written(place)]
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:32]


def _written(place: GroupLocation) -> tuple[str, ...]:
    """The function, without what it is in (Python 3.10 does not say), and the statement or line."""
    if not place.line:
        return ()
    return (place.function.rpartition(".")[2], normalised_code(place.statement or place.text))


def without_quantities(message: str) -> str:
    """A message with its numbers left out, with their units: ``torch #; # there and back``."""
    return _QUANTITY.sub("#", message)
