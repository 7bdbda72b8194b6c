"""Scanning a text as if it were a file."""

from __future__ import annotations

import textwrap
from pathlib import Path

from opcheck.common.versions import Target, Version
from opcheck.source.engine import scan
from opcheck.source.scan_records import ScanReport

TARGET = Target(torch=Version(2, 15), macos=Version(26))


def report(directory: Path, *, target: Target = TARGET, **files: str) -> ScanReport:
    """Scan a directory with these files: ``name="text"`` is ``name.py``."""
    for name, text in files.items():
        (directory / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return scan([str(directory)], target)


def scan_text(directory: Path, text: str, *, target: Target = TARGET) -> list[tuple[str, int]]:
    """The rules and lines that a program is told of; ``torch`` and ``os`` are imported in it."""
    program = f"import os\nimport torch\n{textwrap.dedent(text).lstrip()}"
    findings = report(directory, target=target, program=program).findings
    lines = [finding.locations[0].location for finding in findings]
    return [(finding.rule, place.line - 2) for finding, place in zip(findings, lines, strict=True) if place is not None]
