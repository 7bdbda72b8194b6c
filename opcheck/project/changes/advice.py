"""What ``opcheck upgrade`` says."""

from __future__ import annotations

from opcheck.model.records import Record, ReportTarget
from opcheck.project.changes.records import Entry


class Cell(Record, frozen=True, kw_only=True):
    """One release on one macOS version."""

    torch: str
    macos: str
    current: bool = False
    #: empty: there is no such pair, and why
    headline: str = ""
    impossible: str = ""
    #: findings by severity; of the current target's, how many are gone; and what is new against it.
    errors: int = 0
    warnings: int = 0
    removed: int = 0
    new: int = 0


class Change(Record, frozen=True, kw_only=True):
    """What to change; what stays as it is is empty."""

    torch: str = ""
    macos: str = ""


class Removal(Record, frozen=True, kw_only=True):
    """A finding of the current target, and the smallest changes without it; None: there is none."""

    rule: str
    severity: str
    op: str
    message: str
    #: its first line
    line: str
    torch_alone: Change | None
    macos_alone: Change | None
    #: looked for where neither alone is enough
    both: Change | None
    #: the newest older release without it, where no newer target is
    older: Change | None


class Upgrade(Record, frozen=True, kw_only=True):
    """A change, and what comes of it."""

    change: Change
    headline: str
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
    headline: str
    #: false: the run of the current target broke off
    complete: bool
    #: the flags of the capture, to ask for it again
    flags: tuple[str, ...]
    findings: tuple[Removal, ...]
    #: the smallest change with the fewest errors, then warnings; None: none is better than no change
    upgrade: Upgrade | None
    #: the newest release that was looked at on the newest macOS version; None: that is the current one
    newest: Upgrade | None
    #: by release, then by macOS version
    grid: tuple[Cell, ...]
    op_lists: dict[str, str]
    not_checked: tuple[str, ...]
