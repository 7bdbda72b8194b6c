"""Finds the smallest change of torch or macOS that removes each finding, from reports of one model.

``targets`` lists what to audit; ``advise`` then reads the reports.  This module judges nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from opcheck.common.text import any_layer, normalised_code
from opcheck.common.tool import TOOL
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.common.vocabulary import Headline, Severity
from opcheck.data.registrations import OpLists
from opcheck.judge.report_changes import Entry, entries_of
from opcheck.judge.target_change import VersionChange, change_between
from opcheck.model.records import Record, Report, ReportTarget, RouteWork

NOT_CHECKED = (
    "nothing was observed on a Mac: the grid follows from the releases' registrations",
    "notes, which are no reason to upgrade; speed and numerical results",
    "whether a release has a wheel for your Python, and whether your other packages support it",
    "a macOS version between two columns: a column is about the version in its header",
)
#: The routes whose kernels are a part of macOS.
_APPLE = ("graph", "mps")
#: What an upgrade is for.
_COUNTED = ("error", "warning")


class UpgradeCell(Record, frozen=True, kw_only=True):
    """A torch release on a macOS version, with the counts of its report."""

    torch: str
    macos: str
    current: bool = False
    #: why the pair cannot exist; empty: it can
    headline: str = ""
    impossible: str = ""
    #: findings by severity; of the current target's, how many are gone; and what is new against it.
    errors: int = 0
    warnings: int = 0
    removed: int = 0
    new: int = 0


class Removal(Record, frozen=True, kw_only=True):
    """A finding of the current target, and the smallest changes without it; None: there is none."""

    rule: str
    severity: Severity
    op: str
    message: str
    #: its first line
    line: str
    torch_alone: VersionChange | None
    macos_alone: VersionChange | None
    #: looked for where neither alone is enough
    both: VersionChange | None
    #: the newest older release without it, where no newer target is
    older: VersionChange | None


class Upgrade(Record, frozen=True, kw_only=True):
    """A change, and what comes of it."""

    change: VersionChange
    headline: Headline
    removed: int
    #: findings that stay
    kept: int
    #: what it breaks: errors and warnings that the current target does not have
    new: tuple[Entry, ...]


class Advice(Record, frozen=True, kw_only=True):
    """The answer to ``opcheck upgrade``."""

    schema: str = "opcheck-upgrade/1"
    tool: str
    model: str
    target: ReportTarget
    headline: Headline
    #: false: the run of the current target broke off
    complete: bool
    #: the flags of the capture, to ask for it again
    flags: tuple[str, ...]
    findings: tuple[Removal, ...]
    #: the smallest change with the fewest errors, then warnings; None: none is better than no change
    upgrade: Upgrade | None
    #: the newest release that was looked at on the newest macOS version; None: that is the current one
    newest: Upgrade | None
    #: the calls of the current target that Apple's libraries compute: what an upgrade of macOS alone can change
    apple: tuple[RouteWork, ...] = ()
    #: by release, then by macOS version
    grid: tuple[UpgradeCell, ...]
    op_lists: dict[str, str]
    not_checked: tuple[str, ...]


def targets(
    current: Target, releases: Iterable[Version], lists: OpLists
) -> tuple[tuple[Target, ...], tuple[UpgradeCell, ...]]:
    """Return the targets to audit, the current one first, and the pairs of releases and macOS that cannot exist."""
    possible = [current]
    impossible = []
    for line in sorted({*releases, current.torch}):
        for system in _systems(current, lists):
            pair = replace(current, torch=line, macos=system)
            minimum = lists.release(str(line)).minimum
            if system >= minimum:
                possible += [pair] if pair != current else []
            else:
                why = f"needs macOS {minimum}"
                impossible.append(UpgradeCell(torch=str(line), macos=str(system), impossible=why))
    return tuple(possible), tuple(impossible)


def advise(
    reports: Mapping[Target, Report], impossible: Sequence[UpgradeCell], current: Target, lists: OpLists
) -> Advice:
    """Return the advice for ``current``, which is one of the reports' targets."""
    seen = {target: _IndexedReport(report) for target, report in reports.items()}
    here = seen[current]
    report = reports[current]
    cells = [_cell(target, there, here, current) for target, there in seen.items()]
    newer = (target for target in seen if _newer(target, current))
    newest = max(newer, key=_versions, default=None)
    return Advice(
        tool=TOOL,
        model=report.model,
        target=report.target,
        headline=report.headline,
        complete=report.capture.complete,
        flags=report.capture.flags,
        findings=tuple(_removal(index, here, seen, current) for index in here.counted),
        upgrade=_best(here, seen, current),
        newest=_upgrade(newest, here, seen[newest], current) if newest else None,
        apple=tuple(each for each in report.routes if each.route in _APPLE),
        grid=tuple(sorted((*cells, *impossible), key=_by_versions)),
        op_lists={"digest": lists.digest, "newest": lists.releases[-1].torch},
        not_checked=NOT_CHECKED,
    )


class _IndexedReport:
    """The findings of a report, indexed for comparison with another."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.findings = report.findings
        self.names = [frozenset(finding.fingerprints) for finding in report.findings]
        #: the lines as fingerprints have them, without the rule and the operator
        self.lines = [
            {
                (each.phase, any_layer(each.module), normalised_code(each.statement or each.text))
                for each in finding.locations
            }
            for finding in report.findings
        ]
        counted = [n for n, each in enumerate(report.findings) if each.severity in _COUNTED]
        self.counted = [index for index in counted if not report.findings[index].ignored]
        self.all_names = frozenset().union(*self.names)

    def errors_and_warnings(self) -> tuple[int, int]:
        severities = [self.findings[index].severity for index in self.counted]
        return severities.count("error"), severities.count("warning")

    def new(self, here: _IndexedReport) -> list[int]:
        """Return the findings that share no place with those of the current target."""
        return [index for index in self.counted if not self.names[index] & here.all_names]

    def entries(self, indices: Iterable[int]) -> tuple[Entry, ...]:
        """Return an entry for each place of these findings."""
        return entries_of(self.findings[index] for index in indices)

    def removes(self, index: int, here: _IndexedReport) -> bool:
        """Return whether a finding of the current target is gone, and its lines have no new finding."""
        # The findings of a run that broke off are incomplete.
        if here.names[index] & self.all_names or not self.report.capture.complete:
            return False
        return not any(here.lines[index] & self.lines[number] for number in self.new(here))


def _cell(target: Target, seen: _IndexedReport, here: _IndexedReport, current: Target) -> UpgradeCell:
    errors, warnings = seen.errors_and_warnings()
    return UpgradeCell(
        torch=str(target.torch),
        macos=str(target.macos),
        current=target == current,
        headline=seen.report.headline,
        errors=errors,
        warnings=warnings,
        removed=sum(seen.removes(index, here) for index in here.counted),
        new=len(seen.new(here)),
    )


def _removal(index: int, here: _IndexedReport, seen: Mapping[Target, _IndexedReport], current: Target) -> Removal:
    finding = here.findings[index]
    without = [target for target, there in seen.items() if there.removes(index, here)]
    newer = sorted((each for each in without if _newer(each, current)), key=_versions)
    torch_alone = next((each for each in newer if each.macos == current.macos), None)
    macos_alone = next((each for each in newer if each.torch == current.torch), None)
    either = torch_alone or macos_alone
    both = newer[0] if newer and not either else None
    older = [each for each in without if each.macos == current.macos and each.torch < current.torch]

    def change(target: Target | None) -> VersionChange | None:
        return change_between(current, target) if target else None

    return Removal(
        rule=finding.rule,
        severity=finding.severity,
        op=finding.op,
        message=finding.message,
        line=finding.locations[0].line if finding.locations else "",
        torch_alone=change(torch_alone),
        macos_alone=change(macos_alone),
        both=change(both),
        older=None if either or both else change(max(older, key=_versions, default=None)),
    )


def _best(here: _IndexedReport, seen: Mapping[Target, _IndexedReport], current: Target) -> Upgrade | None:
    newer = sorted((target for target in seen if _newer(target, current)), key=lambda target: _order(target, current))
    best = min(newer, key=lambda target: _badness(seen[target]), default=None)
    if best is None or _badness(seen[best]) >= _badness(here):
        return None
    return _upgrade(best, here, seen[best], current)


def _upgrade(target: Target, here: _IndexedReport, there: _IndexedReport, current: Target) -> Upgrade:
    removed = sum(there.removes(index, here) for index in here.counted)
    return Upgrade(
        change=change_between(current, target),
        headline=there.report.headline,
        removed=removed,
        kept=len(here.counted) - removed,
        new=there.entries(there.new(here)),
    )


def _badness(seen: _IndexedReport) -> tuple[int, int, int]:
    """Return what an upgrade must lower; an incomplete run is worse, since later errors are unknown."""
    return (not seen.report.capture.complete, *seen.errors_and_warnings())


def _newer(target: Target, current: Target) -> bool:
    """Return whether the target is newer in torch or macOS, and older in neither."""
    return (target.torch >= current.torch and target.macos >= current.macos) and target != current


def _versions(target: Target) -> tuple[Version, Version]:
    return target.torch, target.macos


def _order(target: Target, current: Target) -> tuple[bool, bool, Version, Version]:
    """Return a sort key that puts smaller changes first: macOS alone, torch alone, both; each by version."""
    torch_differs, macos_differs = target.torch != current.torch, target.macos != current.macos
    return (torch_differs and macos_differs, torch_differs, target.torch, target.macos)


def _by_versions(cell: UpgradeCell) -> tuple[Version, Version]:
    return Version.parse(cell.torch), Version.parse(cell.macos)


def _systems(current: Target, lists: OpLists) -> list[Version]:
    """Return one macOS version per major: the first supported by a release, or the current version."""
    versions = {major: Version(major) for major in MACOS_MAJORS}
    # The oldest releases start on 12.3, not on 12.0.
    minima = sorted(release.minimum for release in lists.releases)
    versions |= {first.major: first for first in reversed(minima)}
    return sorted((versions | {current.macos.major: current.macos}).values())
