"""Versions as a user writes them -> the release that answers, and the macOS versions that matter."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import msgspec

from opcheck.common.errors import OpcheckError
from opcheck.common.versions import MACOS_MAJORS, Version, parse_macos, parse_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opcheck.data.files import Release
    from opcheck.data.registrations import OpLists

#: torch 2.6.0.dev20241101, 2.6.0a0+git1234, 2.6.0rc1: built before the release of that number.
_EARLY = re.compile(r"\d+\.\d+(\.\d+)?\.?(dev|a|b|rc)\d*.*")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A release of the lists, and what to tell a user who wrote another version."""

    release: Release
    note: str = ""


def release_of(text: str, lists: OpLists, flag: str = "--torch") -> Asked:
    """The release that answers for a version as the user wrote it.

    Raises:
        UsageError: not a version.
        UnknownTargetError: no list is near.
        NewerThanListsError: newer than every list.
    """
    known = tuple(Version.parse(release.line) for release in lists.releases)
    with named(flag):
        release = lists.release(str(parse_torch(text, known)))
    if text in {release.line, release.torch}:
        return Asked(release=release)
    note = f"the list of torch {release.torch} answers for {text}"
    if _EARLY.fullmatch(text):
        note += f", which was built before {release.line}.0 and may lack some of it"
    return Asked(release=release, note=note)


def macos_of(text: str | None, release: Release) -> str:
    """The macOS version that was asked for, or the newest known.

    Raises:
        UsageError: not a version.
        UnknownTargetError: no such macOS, or the release does not start its backend on it.
        NewerThanListsError: newer than the lists speak of.
    """
    with named("--macos"):
        return str(
            parse_macos(
                text or str(MACOS_MAJORS[-1]),
                Version.parse(release.minimum_macos),
                Version.parse(release.line),
            )
        )


def macos_points(release: Release, bounds: Iterable[Version]) -> tuple[str, ...]:
    """The macOS versions at which the release's answer can change, the oldest first."""
    minimum = Version.parse(release.minimum_macos)
    versions = {minimum, *bounds} | {Version(major) for major in MACOS_MAJORS}
    return tuple(str(version) for version in sorted(versions) if version >= minimum)


@contextlib.contextmanager
def named(flag: str) -> Iterator[None]:
    """Name the flag in errors that do not know where their text comes from."""
    try:
        yield
    except OpcheckError as error:
        error.context = error.context or flag
        raise
