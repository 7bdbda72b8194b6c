"""What a scan found."""

from __future__ import annotations

from opcheck.model.records import Finding, Problem, Record


class ScanReport(Record, frozen=True, kw_only=True):
    """All findings of a scan, and what was not read."""

    schema: str = "opcheck-scan/2"
    tool: str
    target: dict[str, str]
    paths: tuple[str, ...]
    #: what was read: python files, notebooks, requirement files, lines
    read: dict[str, int]
    #: findings by severity and by rule
    totals: dict[str, int]
    by_rule: dict[str, int]
    findings: tuple[Finding, ...]
    #: findings that a comment or the configuration ignores
    ignored: int = 0
    #: findings that a baseline knows; they are left out.
    known: int = 0
    #: entries of the configuration that no longer hold, or silence nothing.
    notes: tuple[str, ...] = ()
    #: files, or cells of notebooks, that were not read, and why.
    problems: tuple[Problem, ...] = ()
    #: directories and links that were left out, by why.
    skipped: dict[str, int] = {}
    not_checked: tuple[str, ...] = ()
