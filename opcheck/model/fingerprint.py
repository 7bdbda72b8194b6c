"""A name for a finding that outlives edits around it: what baselines and code scanning know it by.

It is made of the rule, the operator, the module (its layers' numbers left out), the phase, the function, and the statement
with the names of variables left out (of a library's code the line).  It is not made of the file, the line's number, the
release or the counts: moving or reformatting the line, renaming a variable or adding a layer keeps it, another operator,
another call or another function changes it.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from collections import Counter
from collections.abc import Iterable

from opcheck.common.text import any_layer
from opcheck.model.records import Finding, GroupLocation, SourceLocation

#: Part of each fingerprint, so that a change of what it is made of does not pass for other findings.
VERSION = "opcheck/2"

#: Not the tokenize module: a line is often half a statement, at which it raises.
_TOKEN = re.compile(
    r"""
    (?P<comment>\#.*)
    | (?P<string>[A-Za-z]{0,2}(?:"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?))
    | (?P<number>\d[\w.]*)
    | (?P<name>[^\W\d]\w*)
    | (?P<other>==|\S)
    """,
    re.VERBOSE,
)
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


def fingerprint(finding: Finding, place: GroupLocation | None) -> str:
    """32 hexadecimal digits for a finding at one of its locations."""
    # A finding of no one operator has only its message to tell it from others of its rule.
    about = finding.op or without_quantities(finding.message)
    parts = [VERSION, finding.rule, about]
    if place is not None:
        parts += [place.phase, any_layer(place.module), *_written(place.location)]
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:32]


def _written(where: SourceLocation | None) -> tuple[str, ...]:
    """The function, without what it is in (Python 3.10 does not say), and the statement or line."""
    if where is None:
        return ()
    return (where.function.rpartition(".")[2], normalised(where.statement or where.text))


def without_quantities(message: str) -> str:
    """A message with its numbers left out, with their units: ``torch #; # there and back``."""
    return _QUANTITY.sub("#", message)


def normalised(line: str) -> str:
    """A line of Python with variables numbered in order, without comments, its tokens apart.

    Attributes (``x.relu``) and the names of keyword arguments (``dim=``) are no variables.
    """
    tokens = [match for match in _TOKEN.finditer(line) if match.lastgroup != "comment"]
    texts = [match[0] for match in tokens]
    numbers: dict[str, str] = {}
    depth = 0
    written = []
    for place, (match, text) in enumerate(zip(tokens, texts, strict=True)):
        depth += (text in "([{") - (text in ")]}")
        before = texts[place - 1] if place else ""
        after = texts[place + 1] if place + 1 < len(texts) else ""
        named = before == "." or keyword.iskeyword(text) or (after == "=" and depth > 0)
        is_variable = match.lastgroup == "name" and not named
        number = f"v{len(numbers) + 1}"
        written.append(numbers.setdefault(text, number) if is_variable else text)
    return " ".join(written)
