"""The torch release and the macOS version of a log, as far as the log has them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from opcheck.common.errors import UnknownTargetError
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.common.vocabulary import FallbackKind
from opcheck.data.registrations import OpLists
from opcheck.device.observe.mac_texts import LogEvent, table


class System(NamedTuple):
    """The target of a log, and which parts of it were assumed."""

    target: Target
    #: torch's version as the log writes it, or empty
    torch: str
    notes: tuple[str, ...]


def system(
    text: str,
    events: Sequence[LogEvent],
    lists: OpLists,
    *,
    torch: str | None = None,
    macos: str | None = None,
) -> System:
    """Find the target of a log: as the user names it, as the log has it, or as its texts allow.

    Args:
        text: the logs.
        events: what was read in them.
        lists: the releases that are known.
        torch: ``--torch``.
        macos: ``--macos``.

    Raises:
        UsageError, UnknownTargetError: ``torch`` or ``macos`` is no version, or has no list.
    """
    notes: list[str] = []
    written = _first(table().torch, text)
    releases = tuple(Version.parse(release.line) for release in lists.releases)
    line = parse_torch(torch, releases) if torch else _line(written, events, lists, releases, notes)
    minimum = Version.parse(lists.release(str(line)).minimum_macos)
    logged = _first(table().macos, text)
    version = parse_macos(macos, minimum, line) if macos else _macos(logged, minimum, notes)
    raised = any(event.kind == "no_kernel" for event in events)
    fell_back = any(_needs_variable(event, str(line), lists) for event in events)
    if not fell_back and not raised:
        notes.append("whether PYTORCH_ENABLE_MPS_FALLBACK was set: the log does not show it")
    target = Target(torch=line, macos=version, cpu_fallback=fell_back and not raised)
    return System(target, written, tuple(notes))


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> str:
    matches = (pattern.search(text) for pattern in patterns)
    return next((match[1] for match in matches if match), "")


def _line(
    written: str,
    events: Sequence[LogEvent],
    lists: OpLists,
    releases: Sequence[Version],
    notes: list[str],
) -> Version:
    commits = {event.words.get("commit") for event in events}
    built = [Version.parse(release.line) for release in lists.releases if release.commit in commits]
    if built:
        return max(built)
    if written:
        version = Version.parse(written)
        if version in releases:
            return version
        nearest = min(
            releases,
            key=lambda line: abs(line.minor - version.minor + 100 * (line.major - version.major)),
        )
        notes.append(
            f"what torch {written}, the release of the log, registers: the nearest release with a "
            f"list is {nearest}"
        )
        return nearest
    possible = [line for line in releases if all(line in event.torch for event in events)]
    assumed = max(possible, default=min(releases))
    why = (
        "the log does not name it; "
        f"{assumed} was assumed, the newest that prints all texts of the log (--torch)"
        if possible
        else f"no known release prints all texts of the log; {assumed} was assumed (--torch)"
    )
    notes.append(f"the torch release: {why}")
    return assumed


def _macos(written: str, minimum: Version, notes: list[str]) -> Version:
    newest = max(Version(MACOS_MAJORS[-1]), minimum)
    if not written:
        notes.append(f"the macOS version: the log does not name it; {newest} was assumed (--macos)")
        return newest
    version = Version.parse(written)
    try:
        return parse_macos(written, Version(0), version)
    except UnknownTargetError:
        notes.append(
            f"macOS {written}, the version of the log: the lists do not have it; {newest} was "
            "assumed"
        )
        return newest


def _needs_variable(event: LogEvent, line: str, lists: OpLists) -> bool:
    """Return whether the event is a fallback that the release makes only where the variable is set."""
    fell_back = event.kind in {"fallback", "fallback_run", "fallback_total"} and event.op
    return bool(fell_back) and resolution(event.op, line, lists) != ("fallback", "always")


def resolution(op: str, line: str, lists: OpLists) -> tuple[str, FallbackKind | None]:
    """The status and kind of an operator in the lists.

    For a name without its overload, a fallback of any of its overloads counts.
    """
    resolved = lists.resolve(op, line)
    if resolved.status != "unknown" or "." in op:
        return resolved.status, resolved.kind
    overloads = [name for name in lists.operators(line) if name.startswith(op + ".")]
    kinds = {(each.status, each.kind) for each in (lists.resolve(name, line) for name in overloads)}
    for fallback in _FALLBACKS:
        if fallback in kinds:
            return fallback
    return next(iter(sorted(kinds, key=str)), ("unknown", None))


_FALLBACKS: tuple[tuple[str, FallbackKind], ...] = (("fallback", "always"), ("fallback", "env"))
