"""Which torch and which macOS a log is of, as far as it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from opcheck.common.errors import UnknownTargetError
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.common.vocabulary import FallbackKind
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_events import LogEvent

#: How tools write torch's version: collect_env, pip list, pip freeze, accelerate, a prompt.
_TORCH = tuple(
    re.compile(text, re.MULTILINE)
    for text in (
        r"PyTorch version(?: \(GPU\?\))?: {0,4}(\d{1,2}\.\d{1,2}[\w.+]{0,40})",
        r"^(?:\[(?:pip3|conda)\] )?torch(?:==|@| {1,40})(\d{1,2}\.\d{1,2}[\w.+]{0,40})",
        r"\"torch\" {0,10}: {0,4}\"(\d{1,2}\.\d{1,2}[\w.+]{0,40})\"",
        r"torch\.__version__.{0,20}\n'?(\d{1,2}\.\d{1,2}[\w.+]{0,40})",
        r"\b(?:py)?torch(?: version)?[ :=]{1,4}v?(\d{1,2}\.\d{1,2}\.\d{1,2}[\w.+]{0,40})",
    )
)
_MACOS = tuple(
    re.compile(text)
    for text in (
        r"\bOS: macOS (\d{2}(?:\.\d{1,2}){0,2})",
        r"\bOS Version: {1,12}macOS (\d{2}(?:\.\d{1,2}){0,2})",
        r"\"train\" : \"macOS (\d{2}(?:\.\d{1,2}){0,2})\"",
        r"\bmacOS-(\d{2}(?:\.\d{1,2}){1,2})-",
        r"ProductVersion:\s{1,8}(\d{2}(?:\.\d{1,2}){0,2})",
        r"\bImage: macos-(\d{2})\b",
    )
)


class System(NamedTuple):
    """The target that a log is of, and what of it the log does not say."""

    target: Target
    #: torch's version as the log writes it; empty: it does not.
    torch: str
    notes: tuple[str, ...]


def system(
    text: str,
    seen: Sequence[LogEvent],
    lists: OpLists,
    *,
    torch: str | None = None,
    macos: str | None = None,
) -> System:
    """The target, as it was asked for, as the log says it, or as the wordings leave it open.

    Args:
        text: the logs.
        seen: what was read in them.
        lists: the releases that are known.
        torch: ``--torch``.
        macos: ``--macos``.

    Raises:
        UsageError, UnknownTargetError: the asked release or macOS is none, or there is no list for it.
    """
    notes: list[str] = []
    written = _first(_TORCH, text)
    line = parse_torch(torch, _known(lists)) if torch else _line(written, seen, lists, notes)
    release = lists.release(str(line))
    minimum = Version.parse(release.minimum_macos)
    logged = _first(_MACOS, text)
    version = parse_macos(macos, minimum, line) if macos else _macos(logged, minimum, notes)
    raised = any(sighting.kind == "no_kernel" for sighting in seen)
    fell = any(_needs_the_variable(sighting, str(line), lists) for sighting in seen)
    target = Target(torch=line, macos=version, cpu_fallback=fell and not raised)
    if not fell and not raised:
        notes.append("whether PYTORCH_ENABLE_MPS_FALLBACK was set: the log does not tell")
    return System(target, written, tuple(notes))


def _known(lists: OpLists) -> tuple[Version, ...]:
    return tuple(Version.parse(release.line) for release in lists.releases)


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> str:
    matches = (pattern.search(text) for pattern in patterns)
    return next((match[1] for match in matches if match), "")


def _line(written: str, seen: Sequence[LogEvent], lists: OpLists, notes: list[str]) -> Version:
    known = _known(lists)
    commits = {sighting.words["commit"] for sighting in seen if "commit" in sighting.words}
    built = [Version.parse(r.line) for r in lists.releases if r.commit in commits]
    if built:
        return max(built)
    if written:
        version = Version.parse(written)
        if version in known:
            return version
        nearest = min(
            known,
            key=lambda line: abs(line.minor - version.minor + 100 * (line.major - version.major)),
        )
        notes.append(
            f"what torch {written}, of which the log is, registers: {nearest} is the nearest with a list"
        )
        return nearest
    fitting = [line for line in known if all(line in sighting.torch for sighting in seen)]
    assumed = max(fitting, default=min(known))
    notes.append(
        f"the torch release: the log does not say it, and {assumed} was assumed, the newest in which all "
        "that it holds is worded so (--torch)"
        if fitting
        else f"the torch release: no known one words all that the log holds so; {assumed} was assumed (--torch)"
    )
    return assumed


def _macos(written: str, minimum: Version, notes: list[str]) -> Version:
    newest = max(Version(MACOS_MAJORS[-1]), minimum)
    if not written:
        notes.append(
            f"the macOS version: the log does not say it, and {newest} was assumed (--macos)"
        )
        return newest
    version = Version.parse(written)
    try:
        return parse_macos(written, Version(0), version)
    except UnknownTargetError:
        notes.append(
            f"macOS {written}, of which the log is: the lists do not know it, and {newest} was assumed"
        )
        return newest


def _needs_the_variable(one: LogEvent, line: str, lists: OpLists) -> bool:
    """Whether it is a fallback that the release makes only with the variable."""
    if one.kind not in {"fallback", "fallback_run", "fallback_total"} or not one.op:
        return False
    pair = resolution(one.op, line, lists)
    return pair != ("fallback", "always")


def resolution(op: str, line: str, lists: OpLists) -> tuple[str, FallbackKind | None]:
    """What the lists say of an operator; of a name without its overload, what they say of the worst of them."""
    found = lists.resolve(op, line)
    if found.status != "unknown" or "." in op:
        return found.status, found.kind
    overloads = [name for name in lists.operators(line) if name.startswith(op + ".")]
    resolved = [lists.resolve(name, line) for name in overloads]
    kinds = {(one.status, one.kind) for one in resolved}
    for wanted in (("fallback", "always"), ("fallback", "env")):
        if wanted in kinds:
            return wanted
    return next(iter(sorted(kinds, key=str)), ("unknown", None))
