"""The report of a scan."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from opcheck.common.vocabulary import SEVERITIES
from opcheck.model.records import Finding, Problem, Record, SourceLocation


class ScanFinding(Finding, frozen=True, kw_only=True):
    """A finding of the scan."""

    #: ``safe``, ``unsafe``, or ``none`` and why a tool cannot correct it: ``none: a person must choose``
    fix: str = ""

    @property
    def place(self) -> SourceLocation | None:
        """The first location of the finding; None where it has no location."""
        return self.locations[0].location if self.locations else None


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
