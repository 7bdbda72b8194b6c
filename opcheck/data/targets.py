"""Parse targets: one release and one macOS (``target``), ``torch=2.9,macos=14`` (``parse``), or ranges (``pairs``).

Ranges have the same syntax for torch and for macOS; a list of texts means the union of their versions:

=====================  ==================================================================
``2.13`` / ``15``      that version (for torch the release line: ``2.13.1`` belongs to 2.13)
``>=2.9``              all known versions in the range; also ``>``, ``<``, ``<=``, ``==``, ``!=``
``>=2.9,<2.12``        all known versions that meet every condition
``last 3``             the newest three known versions
``newest`` / ``all``   the newest known version / every known version
=====================  ==================================================================

The known versions are the releases of the op lists, and the first version of each macOS that the lists cover
(versions.py); a single macOS version may be any minor version, such as ``14.4``.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NamedTuple

from opcheck.common.documents import brief
from opcheck.common.errors import OpcheckError, UnknownTargetError, UsageError, located_at
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.data.files import Release
from opcheck.data.registrations import NIGHTLY, VARIABLE, OpLists
from opcheck.model.options import Option
from opcheck.model.records import Record

#: A range as a user writes it: a text, or several texts whose versions are joined.
Texts = str | Sequence[str]

NEWEST, ALL = "newest", "all"

_CONDITION = re.compile(r"([<>]=?|[!=]=)\s*(\d[\w.+]*)")
_LAST = re.compile(r"last\s+(\d{1,9})")
_FORMS = 'write "2.13", ">=2.9", ">=2.9,<2.12", "last 3", "newest" or "all", or a list of them'

#: torch 2.6.0.dev20241101, 2.6.0a0+git1234, 2.6.0rc1: built before the release of that number.
_PRERELEASE = re.compile(r"\d+\.\d+(\.\d+)?\.?(dev|a|b|rc)\d*.*")

_KEYS = ("torch", "macos", "fallback")
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}

TORCH = Option("torch release: 2.13, latest or installed.  [default: latest]", metavar="RELEASE")
MACOS = Option("macOS version of the Mac.  [default: the newest]", metavar="VERSION")
NEWEST_KNOWN = Option("Accept the answer of the newest known release for a newer target.")
FALLBACK = Option("Run with PYTORCH_ENABLE_MPS_FALLBACK=1.", negative="--no-fallback")


class TargetOptions(Record, frozen=True, kw_only=True):
    """The target that a user names; None means the newest version."""

    torch: Annotated[str | None, TORCH] = None
    macos: Annotated[str | None, MACOS] = None
    fallback: Annotated[bool, FALLBACK] = False
    newest_known: Annotated[bool, NEWEST_KNOWN] = False

    def target(self, lists: OpLists) -> Target:
        """Return the target that ``target`` makes of the options."""
        return target(self.torch, self.macos, lists, fallback=self.fallback)


def target(torch: str | None, macos: str | None, lists: OpLists, *, fallback: bool = False) -> Target:
    """Return the target that the texts name; None or an empty text means the newest version.

    Raises:
        UsageError: not a version.
        UnknownTargetError: no list for that release, no such macOS, or the release does not start on it.
    """
    release = release_of(torch, lists)
    system, newer = macos_of(macos, release), newer_torch(torch, lists)
    return Target(torch=release.version, macos=system, cpu_fallback=fallback, newer_torch=newer)


def beyond(torch: str | None, macos: str | None, lists: OpLists) -> str:
    """Return what of a target is newer than the op lists, as ``Target.beyond`` does; empty where nothing is.

    Nothing is newer where a wheel's path is in place of its release: its own contents answer.
    A macOS without a release need not start the newest release: the oldest is the example of those that it starts.
    """
    is_named = macos or (torch and not torch.endswith(".whl"))
    return target(torch or lists.releases[0].line, macos, lists).beyond if is_named else ""


def newer_torch(text: str | None, lists: OpLists) -> str:
    """Return the text if it is a torch release that is newer than every list; else an empty text."""
    text = written_release(text)
    if not text or not text[:1].isdigit():
        return ""
    return text if Version.parse(text) > lists.versions[-1] else ""


def parse(text: str, place: str, lists: OpLists) -> Target:
    """Parse ``torch=2.9,macos=14``, with ``fallback=1`` for a set variable; an omitted part is the newest.

    Args:
        text: what the user wrote.
        place: where, for errors: ``--from``.
        lists: the op lists whose releases are known.

    Raises:
        UsageError: another form, or as ``target`` raises it.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or not equals or not value or key in values:
            message = f"not a target: {text!r}"
            hint = "write it as torch=2.9,macos=14 (and fallback=1 for the variable)"
            raise UsageError(message, context=f"{place}, at {part.strip()!r}", hint=hint)
        values[key] = value
    fallback = values.get("fallback", "0").lower()
    if fallback not in _BOOLEANS:
        raise UsageError(f"not a yes or no: {fallback!r}", context=f"{place} {text}", hint="write fallback=1")
    try:
        return target(values.get("torch"), values.get("macos"), lists, fallback=_BOOLEANS[fallback])
    except UsageError as error:
        error.context = f"{place} {text}"
        raise


#: Words for the newest list, and for the release of this environment.
LATEST, INSTALLED = ("latest", "newest"), "installed"


def _unlisted_line() -> str:
    """Return the line of built lists that no listed release has; empty where the lists are the shipped ones."""
    if VARIABLE not in os.environ:
        return ""
    from opcheck.data.built_lists import find_selected

    built = find_selected()
    return built.line if built and built.is_new_line else ""


def written_release(text: str | None) -> str:
    """Return the version that a text names: empty for ``latest``, that of this environment for ``installed``.

    Raises:
        UsageError: ``installed``, and no torch is installed.
    """
    word = (text or "").strip().lower()
    if word == INSTALLED:
        from importlib import metadata

        try:
            return metadata.version("torch").partition("+")[0]
        except metadata.PackageNotFoundError as error:
            message = "no torch is installed in this environment"
            hint = "name a release, such as 2.13, or latest"
            raise UsageError(message, context="--torch installed", hint=hint) from error
    if word == NIGHTLY:
        from opcheck.data.built_lists import find

        chosen = find(word)
        return chosen.torch if chosen else ""
    return "" if word in LATEST else (text or "")


def release_of(text: str | None, lists: OpLists, place: str = "--torch") -> Release:
    """Return the release that represents a version; the newest for None and for an empty text.

    Raises:
        OpcheckError: as ``target`` raises it; an error without a place gets this place.
    """
    text = written_release(text)
    if not text:
        return lists.releases[-2 if _unlisted_line() and len(lists.releases) > 1 else -1]
    with located_at(place):
        return lists.release(str(parse_torch(text, lists.versions)))


def release_note(text: str | None, release: Release) -> str:
    """Return the note for a user whose version differs from the release's; empty where it does not."""
    text = written_release(text)
    if not text or text in {release.line, release.torch}:
        return ""
    note = f"the list of torch {release.torch} answers for {text}"
    if Version.parse(text) > release.version:
        return f"{note}, which is newer than the op lists"
    if _PRERELEASE.fullmatch(text):
        note += f", which was built before {release.line}.0 and may lack some of it"
    return note


def macos_of(text: str | None, release: Release, place: str = "--macos") -> Version:
    """Return the macOS version for a release; the newest known for None and for an empty text.

    Raises:
        OpcheckError: as ``target`` raises it; an error without a place gets this place.
    """
    with located_at(place):
        text = "" if (text or "").lower() in LATEST else text
        return parse_macos(text or str(MACOS_MAJORS[-1]), release.minimum, release.version)


def macos_points(release: Release, bounds: Iterable[Version]) -> tuple[str, ...]:
    """Return the macOS versions where the release's answer can change, the oldest first."""
    versions = {release.minimum, *bounds} | {Version(major) for major in MACOS_MAJORS}
    return tuple(str(version) for version in sorted(versions) if version >= release.minimum)


class Pairs(NamedTuple):
    """The targets of ranges, and the pairs of versions that no Mac can have."""

    #: by release, then macOS, the oldest first; each once.
    targets: tuple[Target, ...]
    #: ``torch 2.15 does not start its MPS backend on macOS 14.0``
    left_out: tuple[str, ...]


def pairs(torch: Texts = NEWEST, macos: Texts = NEWEST, *, lists: OpLists, cpu_fallback: bool = False) -> Pairs:
    """Pair each release with each macOS; list the pairs that do not start as left out.

    Raises:
        UsageError: a text that is no range, or a range without a known version.
        UnknownTargetError: a single version that is not known, or not one of the pairs can be.
    """
    targets: list[Target] = []
    left_out: list[str] = []
    newer = newer_torch(torch if isinstance(torch, str) else None, lists)
    for line in releases(torch, lists):
        minimum = lists.release(str(line)).minimum
        for system in systems(macos):
            if system < minimum:
                left_out.append(f"torch {line} does not start its MPS backend on macOS {system}: it needs {minimum}")
            else:
                targets.append(Target(torch=line, macos=system, cpu_fallback=cpu_fallback, newer_torch=newer))
    if not targets:
        raise UnknownTargetError(
            f"none of these targets exists: {left_out[0]}",
            context=f"torch {_quote_texts(torch)} with macOS {_quote_texts(macos)}",
            hint="widen a range",
        )
    return Pairs(tuple(targets), tuple(left_out))


def releases(texts: Texts, lists: OpLists) -> tuple[Version, ...]:
    """Return the release lines that the texts name, the oldest first.

    Raises:
        OpcheckError: as ``pairs`` raises it.
    """
    lines = lists.versions
    # A range means releases; a nightly build is none.
    shipped = tuple(line for line in lines if str(line) != _unlisted_line())
    return _select_versions(texts, "torch", shipped, lambda text: parse_torch(text, lines))


def systems(texts: Texts) -> tuple[Version, ...]:
    """Return the macOS versions that the texts name, the oldest first.

    Raises:
        OpcheckError: as ``pairs`` raises it.
    """
    newest = tuple(Version(major) for major in MACOS_MAJORS)
    # The release does not matter yet: version 0 starts on every macOS.
    return _select_versions(texts, "macOS", newest, lambda text: parse_macos(text, Version(0), Version(0)))


def _select_versions(
    texts: Texts, what: str, known: tuple[Version, ...], single: Callable[[str], Version]
) -> tuple[Version, ...]:
    versions: set[Version] = set()
    for text in (texts,) if isinstance(texts, str) else texts:
        try:
            versions |= _versions(text.strip().lower(), what, known, single)
        except OpcheckError as error:
            error.context = "; ".join(filter(None, (f"{what} {brief(text)}", error.context)))
            raise
    if not versions:
        raise UsageError(f"no {what} version is named", context=f"{what} {texts!r}", hint=_FORMS)
    return tuple(sorted(versions))


def _versions(text: str, what: str, known: tuple[Version, ...], single: Callable[[str], Version]) -> set[Version]:
    """Return the versions that a text in lower case names."""
    text = text.removeprefix(what.lower()).strip()
    if text == ALL:
        return set(known)
    if text in LATEST:
        return {known[-1]}
    if text in {INSTALLED, NIGHTLY} and what == "torch":
        text = written_release(text)
    last = _LAST.fullmatch(text)
    if last:
        count = int(last[1])
        if not 0 < count <= len(known):
            message = f"there are no {count} newest versions of {what}: {len(known)} are known"
            raise UsageError(message, hint=f'write "last 1" to "last {len(known)}"')
        return set(known[-count:])
    return {single(text)} if text[:1].isdigit() else _find_between(text, what, known)


def _find_between(text: str, what: str, known: tuple[Version, ...]) -> set[Version]:
    """Return the known versions that meet all conditions, without regard to third numbers: 2.9.1 counts as 2.9."""
    from packaging.specifiers import SpecifierSet

    conditions = [_CONDITION.fullmatch(part.strip()) for part in text.split(",")]
    if not all(conditions):
        raise UsageError(f"not a range of versions: {text!r}", hint=_FORMS)
    limits = SpecifierSet(",".join(f"{each[1]}{Version.parse(each[2])}" for each in conditions if each))
    versions = {version for version in known if str(version) in limits}
    if not versions:
        listed = ", ".join(map(str, known))
        raise UsageError(f"no known version of {what} lies in the range {text!r}", hint=f"known are {listed}")
    return versions


def _quote_texts(texts: Texts) -> str:
    return texts if isinstance(texts, str) else " or ".join(texts)
