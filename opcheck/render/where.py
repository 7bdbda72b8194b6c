"""Where a finding is, for the formats that must name a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import NamedTuple

from opcheck.model.fingerprint import fingerprints
from opcheck.model.records import CallGroup, Finding, GroupLocation, Report

_MODEL_FILE = re.compile(r"(?P<file>.+\.(?:py|pt2))(?::.*)?", re.DOTALL)


class Hit(NamedTuple):
    """A finding at one of its places."""

    finding: Finding
    #: None: the finding has none.
    place: GroupLocation | None
    fingerprint: str
    #: relative, with slashes; empty: neither a line nor a model in a file.
    file: str
    line: int


def hits(report: Report) -> Iterator[Hit]:
    """Each finding at each of its places, in the order of the report.

    What has no line of the program is at the beginning of the model's file, where the model came from one.
    """
    for finding, own in zip(report.findings, fingerprints(report.findings), strict=True):
        for place, fingerprint in zip(finding.locations or (None,), own, strict=True):
            where = place.location if place else None
            file = relative(where.file) if where else model_file(report)
            yield Hit(finding, place, fingerprint, file, max(where.line, 1) if where else 1)


def model_file(report: Report) -> str:
    """The file that the model was named by; empty: it was not."""
    match = _MODEL_FILE.fullmatch(report.model)
    return relative(match["file"]) if match else ""


def relative(file: str) -> str:
    """A path with slashes that names no machine: of an absolute one, only the file's name."""
    path = PureWindowsPath(file) if "\\" in file or file[1:2] == ":" else PurePosixPath(file)
    return path.name if path.is_absolute() or path.drive else path.as_posix()


def group_of(report: Report, hit: Hit) -> CallGroup | None:
    """The calls that a finding is about, if it is about those of one operator."""
    return next(
        (
            group
            for group in report.groups
            if hit.finding.op == group.op and (hit.place is None or hit.place in group.locations)
        ),
        None,
    )
