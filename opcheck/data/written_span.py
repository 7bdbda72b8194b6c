"""A span of versions in the form of the list files."""

from __future__ import annotations

from opcheck.common.versions import Span, Version
from opcheck.model.records import Record


class WrittenSpan(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``{since: "2.9", until: null}``: from ``since`` up to, but excluding, ``until``; null leaves an end open."""

    since: str | None
    until: str | None

    @property
    def ends(self) -> tuple[str, ...]:
        """The ends that are not null."""
        return tuple(end for end in (self.since, self.until) if end is not None)

    def span(self) -> Span:
        """Return the span; its ends must be versions."""
        return Span(
            since=Version.parse(self.since) if self.since else None,
            until=Version.parse(self.until) if self.until else None,
        )
