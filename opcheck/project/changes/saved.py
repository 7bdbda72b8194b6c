"""Reports read back from the JSON or YAML that ``opcheck audit`` wrote."""

from __future__ import annotations

import contextlib
import re
from typing import TypeVar

from opcheck.common import documents
from opcheck.common.documents import DocumentError, brief
from opcheck.common.errors import UsageError
from opcheck.common.versions import Version
from opcheck.model.records import Finding, GroupLocation, Record, SourceLocation
from opcheck.project.changes.records import Entry, Side, entries_of

#: The schema that this reads (render/schema.py): a file of a newer one may mean something else by the same keys.
NAME, NEWEST = "opcheck-report", 1

Kind = TypeVar("Kind", bound=Record)

_SCHEMA = re.compile(r"(?P<name>[\w-]+)/(?P<version>\d{1,9})")
_AGAIN = "write it again: opcheck audit MODEL -o report.json"


class _Place(Record, frozen=True):
    line: str
    text: str
    module: str
    phase: str
    count: int


class _Finding(Record, frozen=True):
    rule: str
    severity: str
    message: str
    hint: str
    op: str
    count: int
    locations: tuple[_Place, ...]
    #: made when the report was: of the whole statement, of which it has one line.
    fingerprints: tuple[str, ...]
    ignored: str


class _Capture(Record, frozen=True):
    mode: str
    inputs: tuple[str, ...]
    complete: bool


class _OpLists(Record, frozen=True):
    digest: str


class _Target(Record, frozen=True):
    torch: str
    macos: str
    cpu_fallback: bool


class _Judged(Record, frozen=True):
    """What a report says of its target: every reader takes these keys for granted."""

    target: _Target


class _Report(Record, frozen=True):
    """The keys that a comparison reads; the others are left alone."""

    headline: str
    model: str
    target: dict[str, str | bool]
    totals: dict[str, int]
    findings: tuple[_Finding, ...]
    capture: _Capture
    op_lists: _OpLists


def decode(path: str, kind: type[Kind]) -> Kind:
    """The report in a file, JSON or YAML, whatever its suffix: the keys that ``kind`` has.

    Raises:
        UsageError: it cannot be read, is no report, or is one of a newer schema.
    """
    content = _parsed(path)
    schema = content.get("schema") if isinstance(content, dict) else None
    match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if match is None or match["name"] != NAME:
        said = f"its schema is {brief(schema)}" if schema else "it names no schema"
        raise UsageError(f"not a report of an audit: {said}", context=path, hint=_AGAIN)
    if int(match["version"]) > NEWEST:
        raise UsageError(
            f"the report is of a newer schema than this opcheck reads: {schema}",
            context=f"{path}; this one reads {NAME}/{NEWEST}",
            hint=f"upgrade opcheck, or {_AGAIN}",
        )
    try:
        _check_target(content)
        return documents.convert(content, kind)
    except DocumentError as error:
        raise UsageError(f"a damaged report: {error}", context=path, hint=_AGAIN) from error


def _check_target(content: object) -> None:
    target = documents.convert(content, _Judged).target
    try:
        Version.parse(target.torch)
        Version.parse(target.macos)
    except UsageError as error:
        raise DocumentError(error.message) from error


def read(path: str) -> Side:
    """The report in a file, as one side of a comparison.

    Raises:
        UsageError: as ``decode`` does.
    """
    report = decode(path, _Report)
    return Side(
        name=path,
        model=report.model,
        target=report.target,
        headline=report.headline,
        totals=report.totals,
        mode=report.capture.mode,
        inputs=report.capture.inputs,
        complete=report.capture.complete,
        op_lists=report.op_lists.digest,
        entries=_entries(report.findings, path),
    )


def _entries(findings: tuple[_Finding, ...], path: str) -> tuple[Entry, ...]:
    names = [finding.fingerprints for finding in findings]
    try:
        return entries_of([_finding(finding) for finding in findings], names)
    except ValueError as error:
        raise UsageError(
            "a damaged report: a finding has not one fingerprint a location",
            context=path,
            hint=_AGAIN,
        ) from error


def _parsed(path: str) -> object:
    hint = "name a .json or .yaml report"
    try:
        text = documents.read_text(path)
    except DocumentError as error:
        raise UsageError(f"cannot read the report: {error}", context=path, hint=hint) from error
    # JSON first: it is read a hundred times as fast.
    with contextlib.suppress(DocumentError):
        return documents.from_json(text)
    try:
        return documents.from_yaml(text)
    except DocumentError as error:
        raise UsageError(f"neither JSON nor YAML: {error}", context=path, hint=hint) from error


def _finding(found: _Finding) -> Finding:
    return Finding(
        rule=found.rule,
        severity=found.severity,
        message=found.message,
        hint=found.hint,
        op=found.op,
        count=found.count,
        ignored=found.ignored,
        locations=tuple(map(_place, found.locations)),
    )


def _place(found: _Place) -> GroupLocation:
    file, _, number = found.line.rpartition(":")
    is_line = file and number.isdecimal() and len(number) < 10
    return GroupLocation(
        location=SourceLocation(file=file, line=int(number), text=found.text) if is_line else None,
        module=found.module,
        phase=found.phase,
        count=found.count,
    )
