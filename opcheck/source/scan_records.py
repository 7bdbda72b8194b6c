"""The report of a scan."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from opcheck.common.vocabulary import SEVERITIES
from opcheck.model.fingerprint import VERSION, read_baseline
from opcheck.model.records import Finding, Problem, Record


class ScanFinding(Finding, frozen=True, kw_only=True):
    """A finding of the scan."""

    #: ``safe``, ``unsafe``, or ``none`` and why a tool cannot correct it: ``none: a person must choose``
    fix: str = ""


class ScanReport(Record, frozen=True, kw_only=True):
    """The findings of a scan, and what was not read."""

    schema: str = "opcheck-scan/2"
    tool: str
    target: dict[str, str]
    paths: tuple[str, ...]
    #: how many Python files, notebooks, requirement files and lines were read
    read: dict[str, int]
    #: findings by severity and by rule
    totals: dict[str, int]
    by_rule: dict[str, int]
    findings: tuple[ScanFinding, ...]
    #: how many findings a comment or the configuration ignores
    ignored: int = 0
    #: how many findings are in a baseline; they are left out
    known: int = 0
    #: entries of the configuration that have expired, or silence nothing
    notes: tuple[str, ...] = ()
    #: files, or cells of notebooks, that were not read, with the reasons
    problems: tuple[Problem, ...] = ()
    #: how many directories and links were left out, by reason
    skipped: dict[str, int] = {}
    #: how many findings --fix corrects (safe), and how many more --unsafe-fixes does (unsafe)
    fixable: dict[str, int] = {}
    not_checked: tuple[str, ...] = ()


def count_findings(findings: Iterable[ScanFinding]) -> dict[str, Any]:
    """Return the fields of a report that count its findings."""
    severities, rules = Counter[str](), Counter[str]()
    for finding in findings:
        severities[finding.severity] += 1
        rules[finding.rule] += 1
    totals = {name: severities[name] for name in SEVERITIES}
    return {"totals": totals, "by_rule": dict(sorted(rules.items()))}


# -- reads and writes the baseline of a scan: a file of known findings, which a report then leaves out --

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
    known = [
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
        findings=tuple(sorted(known, key=lambda each: (each.file, each.rule, each.fingerprint))),
    )
    return msgspec.json.format(msgspec.json.encode(baseline)).decode() + "\n"


def read(path: Path) -> frozenset[str]:
    """Read the fingerprints of a baseline; ``read_baseline`` raises."""
    baseline = read_baseline(_ScanBaseline, path, SCHEMA, _WRITE)
    return frozenset(finding.fingerprint for finding in baseline.findings)


def remove_known(report: ScanReport, known: frozenset[str]) -> ScanReport:
    """Keep only the findings of a report that a baseline does not know."""
    new = tuple(finding for finding in report.findings if finding.fingerprints[0] not in known)
    known_count = len(report.findings) - len(new)
    return msgspec.structs.replace(report, findings=new, known=known_count, **count_findings(new))
