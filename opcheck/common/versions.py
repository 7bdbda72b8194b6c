"""Versions of torch and macOS, half-open spans of them, and the target that an audit is about."""

from __future__ import annotations

import re

import msgspec

from opcheck.common.documents import brief
from opcheck.common.errors import NewerThanListsError, UnknownTargetError, UsageError

# As many digits as a version can have: Python reads no integer of more than 4,300.
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:[.\-+a-z].*)?")
_MACOS = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.\d{1,9})?")

#: macOS majors that exist, up to the newest one that a statement in the lists speaks of.
#: Apple renumbered after 15: the next was 26.
MACOS_MAJORS = (12, 13, 14, 15, 26)


class Version(msgspec.Struct, frozen=True, order=True):
    """``2.13`` or ``15.1``: the two numbers that both projects gate behaviour on."""

    major: int
    minor: int = 0

    def __str__(self) -> str:
        """Return ``major.minor``; ``parse`` reads it back."""
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read ``2.13``, ``2.13.1``, ``2.6.0.dev20241101``, ``2.13.0+cpu``, ``15``, ``14.2``.

        What follows the second number is dropped: the lists hold the last patch of each minor.

        Raises:
            UsageError: the text does not begin with a version.
        """
        match = _VERSION.fullmatch(text) or _MACOS.fullmatch(text)
        if match is None:
            raise UsageError(
                f"not a version: {brief(text)}", hint="write it as 2.13, 2.13.1 or 15.1"
            )
        return cls(int(match[1]), int(match[2] or 0))


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The versions from ``since`` up to, but without, ``until``; None leaves that end open."""

    since: Version | None = None
    until: Version | None = None

    def __contains__(self, version: Version) -> bool:
        """Return whether the version lies in the span."""
        return (self.since is None or self.since <= version) and (
            self.until is None or version < self.until
        )

    def overlaps(self, span: Span) -> bool:
        """Return whether some version could lie in both spans."""
        return _starts_before_end(self, span) and _starts_before_end(span, self)

    @property
    def empty(self) -> bool:
        """Return whether no version can lie in the span."""
        return self.since is not None and self.until is not None and self.since >= self.until


def _starts_before_end(first: Span, second: Span) -> bool:
    if first.empty or second.empty:
        return False
    return first.since is None or second.until is None or first.since < second.until


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The Mac that an audit is for: a torch release, a macOS version, the fallback variable."""

    torch: Version
    macos: Version
    #: PYTORCH_ENABLE_MPS_FALLBACK is set to a non-zero number before torch is imported.
    cpu_fallback: bool = False
    #: the release as the user wrote it, where that differs from the list that answers for it.
    asked: str = ""

    def __str__(self) -> str:
        """Return ``torch 2.13, macOS 15.0``, with the variable where it is set."""
        variable = ", PYTORCH_ENABLE_MPS_FALLBACK=1" if self.cpu_fallback else ""
        return f"torch {self.torch}, macOS {self.macos}{variable}"


def parse_torch(text: str, known: tuple[Version, ...]) -> Version:
    """Return the known release line for ``text``; patch releases and nightlies map to their line.

    Raises:
        UsageError: not a version.
        NewerThanListsError: newer than every list.
        UnknownTargetError: another release without a list; the nearest known ones are named.
    """
    version = Version.parse(text)
    if version in known:
        return version
    nearest = sorted(known, key=lambda line: _distance(line, version))[:3]
    names = ", ".join(str(line) for line in sorted(nearest))
    if known and version > max(known):
        raise NewerThanListsError(
            f"torch {text} is newer than the op lists: nothing is known about it",
            context=f"the newest list is torch {max(known)}",
            hint=f"audit one of {names}, or build its list: opcheck lists build {version}.0",
        )
    raise UnknownTargetError(
        f"there is no op list for torch {text}",
        context=f"the lists hold torch {', '.join(str(line) for line in known)}",
        hint=f"the nearest are {names}",
    )


def parse_macos(text: str, minimum: Version, torch: Version) -> Version:
    """Return the macOS version, checked against existing versions and the release's own minimum.

    Raises:
        UsageError: not a version.
        NewerThanListsError: newer than the newest macOS that the lists speak of.
        UnknownTargetError: no such macOS, or one on which this release refuses to start.
    """
    version = Version.parse(text)
    majors = ", ".join(str(major) for major in MACOS_MAJORS)
    if version.major > MACOS_MAJORS[-1]:
        raise NewerThanListsError(
            f"macOS {text} is newer than the op lists: nothing is known about it",
            context=f"the newest macOS in the lists is {MACOS_MAJORS[-1]}",
            hint=f"audit one of macOS {majors}",
        )
    if version.major not in MACOS_MAJORS:
        raise UnknownTargetError(
            f"there is no macOS {text} that torch runs on",
            context="macOS goes from 15 to 26: Apple renumbered",
            hint=f"known: {majors}",
        )
    if version < minimum:
        raise UnknownTargetError(
            f"torch {torch} does not start its MPS backend on macOS {text}",
            context=f"The MPS backend is supported on MacOS {minimum}+.",
            hint=f"audit macOS {minimum} or newer, or an older torch",
        )
    return version


def _distance(line: Version, version: Version) -> tuple[int, int]:
    return (abs(line.major - version.major), abs(line.minor - version.minor))
