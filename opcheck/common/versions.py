"""Versions of torch and macOS, half-open spans of them, and the target that an audit is about."""

from __future__ import annotations

import functools
import re

import msgspec

from opcheck.common.documents import brief
from opcheck.common.errors import UnknownTargetError, UsageError

# As many digits as a version can have: Python reads no integer of more than 4,300.
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:[.\-+a-z].*)?")
_MACOS = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.\d{1,9})?")

#: macOS majors that the op lists cover.  Apple renumbered after 15: the next was 26.
MACOS_MAJORS = (12, 13, 14, 15, 26)
#: Newer majors that single statements may name; statements on all macOS since 26 apply to them, too.
MACOS_NEWER = (27,)


class Version(msgspec.Struct, frozen=True, order=True):
    """``2.13`` or ``15.1``: the two numbers that both projects gate behaviour on."""

    major: int
    minor: int = 0

    def __str__(self) -> str:
        """Return ``major.minor``; ``parse`` reads it back."""
        return f"{self.major}.{self.minor}"

    @classmethod
    @functools.lru_cache(maxsize=1 << 10)
    def parse(cls, text: str) -> Version:
        """Read ``2.13``, ``2.13.1``, ``2.6.0.dev20241101``, ``2.13.0+cpu``, ``15``, ``14.2``.

        What follows the second number is dropped: the lists have the last patch of each minor.

        Raises:
            UsageError: the text does not begin with a version.
        """
        match = _VERSION.fullmatch(text) or _MACOS.fullmatch(text)
        if match is None:
            raise UsageError(f"not a version: {brief(text)}", hint="write it as 2.13, 2.13.1 or 15.1")
        return cls(int(match[1]), int(match[2] or 0))


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The versions from ``since`` up to, but without, ``until``; None leaves that end open."""

    since: Version | None = None
    until: Version | None = None

    @classmethod
    def of(cls, since: str, until: str | None = None) -> Span:
        """Return the span between two versions that code names."""
        return cls(since=Version.parse(since), until=Version.parse(until) if until else None)

    def __contains__(self, version: Version) -> bool:
        """Return whether the version lies in the span."""
        return (self.since is None or self.since <= version) and (self.until is None or version < self.until)

    def shared_with(self, span: Span) -> Span:
        """Return the span of the versions that lie in both; it is empty where there are none."""
        since = max((each.since for each in (self, span) if each.since), default=None)
        until = min((each.until for each in (self, span) if each.until), default=None)
        return Span(since=since, until=until)

    def overlaps(self, span: Span) -> bool:
        """Return whether some version could lie in both spans."""
        return not self.shared_with(span).empty

    @property
    def empty(self) -> bool:
        """Return whether no version can lie in the span."""
        return self.since is not None and self.until is not None and self.since >= self.until


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The Mac that an audit is for: a torch release, a macOS version, the fallback variable."""

    torch: Version
    macos: Version
    #: PYTORCH_ENABLE_MPS_FALLBACK is set to a non-zero number before torch is imported.
    cpu_fallback: bool = False
    #: the release that the user named, if it is newer than the list that answers for it; else empty.
    newer_torch: str = ""

    def __str__(self) -> str:
        """Return ``torch 2.13, macOS 15.0``, with the variable where it is set, and what is newer than the lists."""
        return target_text(self.torch, self.macos, self.beyond, cpu_fallback=self.cpu_fallback)

    @property
    def beyond(self) -> str:
        """What of the target is newer than the op lists, and what it is judged as; empty where nothing is."""
        torch = f"torch {self.newer_torch} is newer than the op lists: judged as {self.torch}"
        return "; ".join(filter(None, (torch if self.newer_torch else "", macos_note(self.macos))))


def target_text(torch: object, macos: object, beyond: str, *, cpu_fallback: bool) -> str:
    """Return a target in words, with the variable where it is set, and what is newer than the lists."""
    variable = ", PYTORCH_ENABLE_MPS_FALLBACK=1" if cpu_fallback else ""
    mark = f" ({beyond})" if beyond else ""
    return f"torch {torch}, macOS {macos}{variable}{mark}"


def macos_note(macos: Version) -> str:
    """Return the note on a macOS that is newer than the op lists; empty where they cover it."""
    newest = MACOS_MAJORS[-1]
    if macos.major <= newest:
        return ""
    return f"macOS {macos.major} is newer than the op lists: judged as {newest}"


def parse_torch(text: str, known: tuple[Version, ...]) -> Version:
    """Return the known release line for ``text``; patch releases and nightlies map to their line.

    A release that is newer than every list maps to the newest one: the target says so (``Target.beyond``).

    Raises:
        UsageError: not a version.
        UnknownTargetError: another release without a list; the nearest known ones are named.
    """
    version = Version.parse(text)
    if version in known:
        return version
    if known and version > max(known):
        return max(known)
    nearest = sorted(known, key=lambda line: (abs(line.major - version.major), abs(line.minor - version.minor)))[:3]
    names = ", ".join(str(line) for line in sorted(nearest))
    known_names = ", ".join(map(str, known))
    where, hint = f"the op lists have torch {known_names}", f"the nearest are {names}"
    raise UnknownTargetError(f"there is no op list for torch {text}", context=where, hint=hint)


def parse_macos(text: str, minimum: Version, torch: Version) -> Version:
    """Return the macOS version, checked against existing versions and the release's own minimum.

    A macOS that is newer than the lists is taken as it is: statements since an older macOS apply to it, too.

    Raises:
        UsageError: not a version.
        UnknownTargetError: no such macOS, or one on which this release refuses to start.
    """
    version = Version.parse(text)
    majors = ", ".join(str(major) for major in MACOS_MAJORS)
    if version.major not in MACOS_MAJORS and version.major < MACOS_MAJORS[-1]:
        is_gap = version.major > MACOS_MAJORS[0]
        raise UnknownTargetError(
            f"there is no macOS {text}" if is_gap else f"torch does not run on macOS {text}",
            context="macOS goes from 15 to 26: Apple renumbered" if is_gap else f"macOS {text}",
            hint=f"known: {majors}",
        )
    if version < minimum:
        message = f"torch {torch} does not start its MPS backend on macOS {text}"
        hint = f"audit macOS {minimum} or newer, or an older torch"
        raise UnknownTargetError(message, context=f"The MPS backend is supported on MacOS {minimum}+.", hint=hint)
    return version
