"""Reads and writes the baseline of a scan: a file of known findings, which a report then leaves out."""

from pathlib import Path

import msgspec

from opcheck.common.files import is_file
from opcheck.model.fingerprint import VERSION, read_baseline, read_content
from opcheck.model.records import Record
from opcheck.source.scan_records import ScanReport, count_findings

SCHEMA = "opcheck-scan-baseline/1"

_WRITE = "opcheck scan --baseline FILE --update-baseline"


class _KnownFinding(Record, frozen=True, kw_only=True):
    """A finding as a person reviews it; only its fingerprint is read back."""

    fingerprint: str
    rule: str
    file: str
    text: str


class _ScanBaseline(Record, frozen=True, kw_only=True):
    schema: str
    #: the version of the fingerprints (fingerprint.py)
    fingerprints: str
    findings: tuple[_KnownFinding, ...]


def text(report: ScanReport) -> str:
    """Write the findings of a report as a baseline: JSON, sorted by file, without line numbers."""
    findings = [
        _KnownFinding(
            fingerprint=finding.fingerprints[0],
            rule=finding.rule,
            file=place.location.file if place.location else "",
            text=place.text,
        )
        for finding in report.findings
        for place in finding.locations[:1]
    ]
    baseline = _ScanBaseline(
        schema=SCHEMA,
        fingerprints=VERSION,
        findings=tuple(sorted(findings, key=lambda each: (each.file, each.rule, each.fingerprint))),
    )
    return msgspec.json.format(msgspec.json.encode(baseline)).decode() + "\n"


def read(path: Path) -> frozenset[str]:
    """Read the fingerprints of a baseline; ``read_baseline`` raises."""
    baseline = read_baseline(_ScanBaseline, path, SCHEMA, _WRITE)
    return frozenset(finding.fingerprint for finding in baseline.findings)


def check_replaceable(path: Path) -> None:
    """Refuse to replace a file that is neither empty nor a baseline; ``read_content`` raises."""
    if is_file(path) and path.stat().st_size:
        read_content(path, SCHEMA, _WRITE)


def remove_known(report: ScanReport, known: frozenset[str]) -> ScanReport:
    """Keep only the findings of a report that a baseline does not know."""
    new = tuple(finding for finding in report.findings if finding.fingerprints[0] not in known)
    known_count = len(report.findings) - len(new)
    return msgspec.structs.replace(report, findings=new, known=known_count, **count_findings(new))
