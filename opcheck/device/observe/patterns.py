"""The texts that a Mac prints: the table ``patterns.yaml``, and how a line is read with it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.common.versions import Span, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.device.observe.log_events import LogEvent

#: MPSAllocator.mm, ``format_size``, spells units in its own way up to 2.7, and as c10 does since.
_UNITS = {"bytes": 0, "KB": 1, "MB": 2, "GB": 3, "KiB": 1, "MiB": 2, "GiB": 3}

#: What the unified log puts around a message of the profiler: ``log show --signpost`` and exports
#: of Instruments. The subsystem, categories and names are MPSProfiler.mm's; what stands between
#: them is Apple's, and was not seen on a Mac.
_SIGNPOST = re.compile(
    r"PyTorchMPS\b.{0,200}?PyTorch(?:Operation|Copy|CPUFallbacks?)(?:Intervals|Events)\b"
    r"[^\w]{0,40}(?P<message>.{0,3500})"
)


class Pattern(NamedTuple):
    """A wording, as ``patterns.yaml`` describes it."""

    kind: str
    needle: str
    regex: re.Pattern[str]
    torch: Span
    source: str
    op: str


#: where a text matches, and what it says; twice None where it does not
Match = tuple[re.Match[str], LogEvent] | tuple[None, None]


class PatternTable(NamedTuple):
    """The wordings, in the order in which they are tried."""

    profile: tuple[Pattern, ...]
    texts: tuple[Pattern, ...]
    cut_short: tuple[Pattern, ...]


@functools.cache
def table() -> PatternTable:
    """Read the wordings of ``patterns.yaml``; once."""
    document = load_shipped(Path(__file__).with_name("patterns.yaml"))
    fragments: dict[str, str] = document["fragments"]
    return PatternTable(
        *(
            tuple(_pattern(row, fragments) for row in document[name])
            for name in PatternTable._fields
        )
    )


def _pattern(row: dict[str, Any], fragments: dict[str, str]) -> Pattern:
    regex = "".join(row["regex"])
    # A fragment may hold those that stand before it.
    for name in reversed(fragments):
        regex = regex.replace(f"<{name}>", fragments[name])
    since, until = (Version.parse(row[end]) if end in row else None for end in ("since", "until"))
    return Pattern(
        row["kind"],
        row["needle"],
        re.compile(regex),
        Span(since=since, until=until),
        row.get("source", ""),
        row.get("op", ""),
    )


def first_match(patterns: Sequence[Pattern], text: str) -> Match:
    """The first of the patterns that the text holds, and what it says."""
    for pattern in patterns:
        if pattern.needle in text:
            match = pattern.regex.search(text)
            if match is not None:
                return match, _event(pattern, match)
    return None, None


def profile_event(line: str) -> LogEvent | None:
    """What the profiler or the allocator says in a line; None where the line is not theirs."""
    if "PyTorchMPS" in line:
        signpost = _SIGNPOST.search(line)
        return profile_event(signpost["message"]) if signpost else None
    return first_match(table().profile, line)[1]


def _event(pattern: Pattern, match: re.Match[str]) -> LogEvent:
    words = {name: text.strip() for name, text in match.groupdict().items() if text is not None}
    op = words.pop("op", pattern.op)
    numbers = {name: _NUMBERS[name](words.pop(name)) for name in [*words] if name in _NUMBERS}
    # The dispatcher's own text about MPS is that of a release from before the fallback had one.
    kind = "no_kernel" if words.get("backend") == "MPS" else pattern.kind
    return LogEvent(
        kind=kind,
        op=op.rstrip("."),
        torch=pattern.torch,
        numbers=numbers,
        words=words,
        source=pattern.source,
        text=match[0].strip(),
    )


def _size(text: str) -> int:
    """The bytes of a size such as ``1.50 MiB``, as exact as two digits after the point are."""
    number = text.rstrip("bytesKMGi B")
    return round(float(number) * 1024.0 ** _UNITS[text.removeprefix(number).strip()])


#: The groups that hold numbers, and how they are read; all others hold words.
_NUMBERS: dict[str, Callable[[str], int | float]] = {
    **dict.fromkeys(("source_line", "value", "id", "run", "runs", "scalars"), int),
    **dict.fromkeys(("allocated", "other", "allowed", "asked", "bytes"), _size),
    **dict.fromkeys(("ratio", "mean_ms", "cpu_ms", "gpu_ms", "schedule_ms"), float),
}
