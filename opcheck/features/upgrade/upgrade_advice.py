"""Finds the smallest change of torch or macOS that removes each finding, from reports of one model.

``targets`` lists what to audit; ``advise`` then reads the reports.  This module judges nothing itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.common.picking import pick
from opcheck.common.text import any_layer, normalised_code
from opcheck.common.tool import TOOL
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.common.vocabulary import Headline, Severity
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import OpLists
from opcheck.judge.report_changes import Entry, entries_of
from opcheck.judge.target_change import VersionChange, change_between
from opcheck.model.records import Finding, Record, Report, ReportTarget, RouteWork

NOT_CHECKED: tuple[str, ...] = tuple(load_shipped(__file__, "not_checked.yaml"))
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
    seen = {target: _compare(report, reports[current]) for target, report in reports.items()}
    report = reports[current]
    newest = max((target for target in seen if _newer(target, current)), key=_versions, default=None)
    cells = [*impossible, *(_cell(target, there, current) for target, there in seen.items())]
    return Advice(
        tool=TOOL,
        **pick(report, "model", "target", "headline"),
        **pick(report.capture, "complete", "flags"),
        findings=tuple(_removal(finding, seen, current) for finding in seen[current].counted),
        upgrade=_best(seen, current),
        newest=_upgrade(newest, seen, current) if newest else None,
        apple=tuple(each for each in report.routes if each.route in _APPLE),
        grid=tuple(sorted(cells, key=lambda cell: (Version.parse(cell.torch), Version.parse(cell.macos)))),
        op_lists={"digest": lists.digest, "newest": lists.releases[-1].torch},
        not_checked=NOT_CHECKED,
    )


class _ComparedReport(NamedTuple):
    """A report, compared with that of the current target."""

    report: Report
    #: errors and warnings that are not ignored, and those that share no place with the current target's findings
    counted: list[Finding]
    new: list[Finding]
    #: fingerprints of the current target's findings that are gone, and whose lines have no new finding
    removed: frozenset[tuple[str, ...]]

    def errors_and_warnings(self) -> tuple[int, int]:
        severities = [finding.severity for finding in self.counted]
        return severities.count("error"), severities.count("warning")

    def badness(self) -> tuple[int, int, int]:
        """Return what an upgrade must lower; an incomplete run is worse, since later errors are unknown."""
        return (not self.report.capture.complete, *self.errors_and_warnings())


def _compare(report: Report, current: Report) -> _ComparedReport:
    own, others = ({name for f in each.findings for name in f.fingerprints} for each in (report, current))
    counted, before = ([f for f in r.findings if f.severity in _COUNTED and not f.ignored] for r in (report, current))
    new = [finding for finding in counted if others.isdisjoint(finding.fingerprints)]
    lines = {line for finding in new for line in _lines(finding)}
    gone = (f.fingerprints for f in before if own.isdisjoint(f.fingerprints) and lines.isdisjoint(_lines(f)))
    # The findings of a run that broke off are incomplete.
    return _ComparedReport(report, counted, new, frozenset(gone if report.capture.complete else ()))


def _lines(finding: Finding) -> set[tuple[str, str, str]]:
    """Return the lines of a finding as fingerprints have them, without the rule and the operator."""
    places = finding.locations
    return {(each.phase, any_layer(each.module), normalised_code(each.statement or each.text)) for each in places}


def _cell(target: Target, there: _ComparedReport, current: Target) -> UpgradeCell:
    errors, warnings = there.errors_and_warnings()
    return UpgradeCell(
        torch=str(target.torch),
        macos=str(target.macos),
        current=target == current,
        headline=there.report.headline,
        errors=errors,
        warnings=warnings,
        removed=len(there.removed),
        new=len(there.new),
    )


def _removal(finding: Finding, seen: Mapping[Target, _ComparedReport], current: Target) -> Removal:
    without = [target for target, there in seen.items() if finding.fingerprints in there.removed]
    newer = sorted((each for each in without if _newer(each, current)), key=_versions)
    torch_alone = next((each for each in newer if each.macos == current.macos), None)
    macos_alone = next((each for each in newer if each.torch == current.torch), None)
    either = torch_alone or macos_alone
    both = newer[0] if newer and not either else None
    older = [each for each in without if each.macos == current.macos and each.torch < current.torch]

    def change(target: Target | None) -> VersionChange | None:
        return change_between(current, target) if target else None

    return Removal(
        **pick(finding, "rule", "severity", "op", "message"),
        line=finding.locations[0].line if finding.locations else "",
        torch_alone=change(torch_alone),
        macos_alone=change(macos_alone),
        both=change(both),
        older=None if either or both else change(max(older, key=_versions, default=None)),
    )


def _best(seen: Mapping[Target, _ComparedReport], current: Target) -> Upgrade | None:
    newer = sorted((target for target in seen if _newer(target, current)), key=lambda target: _order(target, current))
    best = min(newer, key=lambda target: seen[target].badness(), default=None)
    if best is None or seen[best].badness() >= seen[current].badness():
        return None
    return _upgrade(best, seen, current)


def _upgrade(target: Target, seen: Mapping[Target, _ComparedReport], current: Target) -> Upgrade:
    there = seen[target]
    return Upgrade(
        change=change_between(current, target),
        headline=there.report.headline,
        removed=len(there.removed),
        kept=len(seen[current].counted) - len(there.removed),
        new=entries_of(there.new),
    )


def _newer(target: Target, current: Target) -> bool:
    """Return whether the target is newer in torch or macOS, and older in neither."""
    return (target.torch >= current.torch and target.macos >= current.macos) and target != current


def _versions(target: Target) -> tuple[Version, Version]:
    return target.torch, target.macos


def _order(target: Target, current: Target) -> tuple[bool, bool, Version, Version]:
    """Return a sort key that puts smaller changes first: macOS alone, torch alone, both; each by version."""
    torch_differs, macos_differs = target.torch != current.torch, target.macos != current.macos
    return (torch_differs and macos_differs, torch_differs, target.torch, target.macos)


def _systems(current: Target, lists: OpLists) -> list[Version]:
    """Return one macOS version per major: the first supported by a release, or the current version."""
    versions = {major: Version(major) for major in MACOS_MAJORS}
    # The oldest releases start on 12.3, not on 12.0.
    minima = sorted(release.minimum for release in lists.releases)
    versions |= {first.major: first for first in reversed(minima)}
    return sorted((versions | {current.macos.major: current.macos}).values())
