"""Fingerprints: names of findings that survive edits around them, for baselines and code scanning.

It is made of the rule, the operator, the module (its layers' numbers left out), the phase, the
function, and the statement with the names of variables left out (of a library's code the line).  It
is not made of the file, the line's number, the release or the counts: moving or reformatting the
line, renaming a variable or adding a layer keeps it, another operator, another call or another
function changes it.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from opcheck.common import documents, tool
from opcheck.common.documents import DocumentError, brief
from opcheck.common.errors import UsageError, explain_errors
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

    return tuple(tuple(own(finding, place) for place in finding.locations or (None,)) for finding in findings)


_Kind = TypeVar("_Kind", bound=Finding)
_Baseline = TypeVar("_Baseline")


def read_baseline(kind: type[_Baseline], path: Path, schema: str, again: str) -> _Baseline:
    """Read a baseline: a file of fingerprints.

    Args:
        kind: the record of its content.
        path: the file.
        schema: its schema, as ``opcheck-baseline/1``.
        again: the command that writes it.

    Raises:
        UsageError: it cannot be read, is damaged, or is of another schema or of other fingerprints.
    """
    written = f"write it again: {again}"
    content = read_content(path, schema, again)
    stated = content["schema"]
    if stated != schema:
        is_newer = int(stated.partition("/")[2]) > int(schema.partition("/")[2])
        problem = f"the baseline is of the {'newer' if is_newer else 'older'} schema {stated}"
        hint = "install the opcheck that wrote it, or a later one" if is_newer else written
        raise UsageError(problem, context=f"{path}; this is opcheck {tool.VERSION}, which reads {schema}", hint=hint)
    if content.get("fingerprints") != VERSION:
        problem = f"the baseline has other fingerprints: {brief(content.get('fingerprints'))}"
        hint = f"none of its findings would be found again; {written}"
        raise UsageError(problem, context=f"{path}; this is opcheck {tool.VERSION}, whose are {VERSION!r}", hint=hint)
    with explain_errors(DocumentError, "the baseline is damaged", context=path, hint=written):
        return documents.convert(content, kind)


def read_content(path: Path, schema: str, again: str) -> dict[str, Any]:
    """Read a baseline of any version of a schema; the arguments are those of ``read_baseline``.

    Raises:
        UsageError: it cannot be read, or it is no baseline.
    """
    hint = f"name another file, or delete this one and write it again: {again}"
    try:
        content: Any = documents.from_json_or_yaml(documents.read(path))
    except DocumentError as error:
        hint = f"write a first baseline, and commit it: {again}" if error.missing else hint
        raise UsageError(f"cannot read the baseline: {error}", context=str(path), hint=hint) from error
    stated = content.get("schema") if isinstance(content, dict) else None
    if not (isinstance(stated, str) and re.fullmatch(rf"{schema.partition('/')[0]}/\d{{1,9}}", stated)):
        raise UsageError(f"this is no baseline: its schema is {brief(stated)}", context=str(path), hint=hint)
    return cast("dict[str, Any]", content)


def add_fingerprints(findings: Iterable[_Kind]) -> Iterator[_Kind]:
    """Return the findings of a report, each with its fingerprints."""
    together = tuple(findings)
    for finding, own in zip(together, fingerprints(together), strict=True):
        yield finding if finding.fingerprints == own else replace(finding, fingerprints=own)


def fingerprint(finding: Finding, place: GroupLocation | None) -> str:
    """Return 32 hexadecimal digits for a finding at a location."""
    # Without an operator, only the message distinguishes the finding from others of its rule.
    parts = [VERSION, finding.rule, finding.op or without_quantities(finding.message)]
    if place is not None:
        parts += [place.phase, any_layer(place.module)]
    if place is not None and place.line:
        # The bare name of the function (Python 3.10 has only that), and the statement or line.
        parts += [place.function.rpartition(".")[2], normalised_code(place.statement or place.text)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def without_quantities(message: str) -> str:
    """Replace the numbers of a message, with their units: ``torch #; # there and back``."""
    return _QUANTITY.sub("#", message)
