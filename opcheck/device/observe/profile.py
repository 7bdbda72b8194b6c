"""The lines of the profiler (PYTORCH_MPS_LOG_PROFILE_INFO), os_signpost and the allocator.

Read out of ``aten/src/ATen/mps/MPSProfiler.{h,mm}`` (the formats are the same from 2.1 to 2.15) and ``MPSAllocator.mm``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from opcheck.common.versions import Span, Version
from opcheck.device.observe.records import Sighting
from opcheck.device.observe.sizes import SIZE, size

_PROFILER = "aten/src/ATen/mps/MPSProfiler.mm"
_ALLOCATOR = "aten/src/ATen/mps/MPSAllocator.mm"
_SINCE_2_1 = Span(since=Version(2, 1))
_SINCE_1_13 = Span(since=Version(1, 13))

_MS = r"\d{1,12}\.\d{1,6}"
_TIMES = rf"(?:, gpu=(?P<gpu_ms>{_MS}) ms)?(?:, cpu=(?P<cpu_ms>{_MS}) ms)?\)"
_GAP = r" {1,30}"


class _Line(NamedTuple):
    kind: str
    needle: str
    regex: re.Pattern[str]
    source: str = _PROFILER
    torch: Span = _SINCE_2_1


_LINES = (
    _Line(
        "fallback_run",
        "CPU Fallback::",
        re.compile(
            rf"CPU Fallback::(?P<op>\w{{1,60}}::[\w.]{{1,120}})(?P<tensors>[^()]{{0,2000}}(?:\(buf#[^)]{{1,40}}\)[^()]{{0,500}}){{0,16}}) "
            rf"\(id=(?P<id>\d{{1,9}}), run=(?P<run>\d{{1,12}}), CopyOverhead=(?P<bytes>{SIZE}){_TIMES}"
        ),
    ),
    _Line(
        "copy",
        "Copy",
        re.compile(
            rf"(?P<how>Blit|Mem)Copy(?P<sync>Sync)?: (?P<from>.{{1,300}}) --> (?P<to>.{{1,300}}) \(len=(?P<bytes>{SIZE}){_TIMES}"
        ),
    ),
    _Line(
        "operation",
        "aten::",
        re.compile(
            rf"^aten::(?P<key>.{{1,3500}}) \(id=(?P<sort>[GK])(?P<id>\d{{1,9}}), run=(?P<run>\d{{1,12}}){_TIMES}"
        ),
    ),
    _Line(
        "fallback_total",
        "::",
        re.compile(
            rf"^ {{0,8}}(?P<id>\d{{1,9}}){_GAP}(?P<runs>\d{{1,12}}){_GAP}(?P<mean_ms>{_MS}){_GAP}(?P<cpu_ms>{_MS})"
            rf"{_GAP}(?P<bytes>{SIZE}){_GAP}(?P<op>\w{{1,60}}::[\w.]{{1,120}})$"
        ),
    ),
    _Line(
        "fallback_total",
        "no CPU Fallbacks",
        re.compile(r"There are no CPU Fallbacks logged for profiling"),
    ),
    _Line(
        "operation_total",
        ".",
        re.compile(
            rf"^ {{0,8}}(?P<sort>[GK])(?P<id>\d{{1,9}}){_GAP}(?P<runs>\d{{1,12}}){_GAP}(?P<schedule_ms>{_MS}){_GAP}(?P<mean_ms>{_MS})"
            rf"{_GAP}(?P<gpu_ms>{_MS}) {{1,30}}(?P<key>\S.{{0,3000}})$"
        ),
    ),
    _Line(
        "copy_total",
        " to ",
        re.compile(
            rf"^ {{0,8}}(?P<from>MPS|CPU) to (?P<to>MPS|CPU){_GAP}(?P<runs>\d{{1,12}}){_GAP}(?P<bytes>{SIZE}){_GAP}(?P<schedule_ms>{_MS})"
            rf"{_GAP}(?P<gpu_ms>{_MS}){_GAP}(?P<scalars>\d{{1,12}})"
        ),
    ),
    _Line(
        "allocator",
        "of size",
        re.compile(
            rf"(?P<what>Allocated|Reusing|Released|Releasing)(?P<pool> shared| private)?(?P<scalar> scalar)? (?P<thing>buffer|heap)"
            rf"(?: #(?P<id>\d{{1,12}}))? of size (?P<bytes>{SIZE})"
        ),
        _ALLOCATOR,
        _SINCE_1_13,
    ),
    _Line(
        "allocator",
        "allocation limit",
        re.compile(
            rf"(?P<what>High|Low) watermark memory allocation limit: (?:(?P<bytes>{SIZE})|unlimited)"
        ),
        _ALLOCATOR,
        Span(since=Version(2, 0)),
    ),
    _Line(
        "allocator",
        "heap allocator on",
        re.compile(
            rf"(?P<what>Initializing) (?:private |shared )?heap allocator on (?P<memory>unified|discrete) device memory of size (?P<bytes>{SIZE})"
        ),
        _ALLOCATOR,
        _SINCE_1_13,
    ),
    _Line(
        "allocator",
        "cached buffers",
        re.compile(
            rf"(?P<what>Attempting) to release cached buffers \(MPS allocated: (?P<bytes>{SIZE}), other allocations: (?P<other>{SIZE})\)"
        ),
        _ALLOCATOR,
        Span(since=Version(2, 0)),
    ),
)

#: What the unified log puts around a message of the profiler: ``log show --signpost`` and exports of Instruments.  The
#: subsystem, categories and names are MPSProfiler.mm's; what stands between them is Apple's and was not seen on a Mac.
_SIGNPOST = re.compile(
    r"PyTorchMPS\b.{0,200}?PyTorch(?:Operation|Copy|CPUFallbacks?)(?:Intervals|Events)\b[^\w]{0,40}(?P<message>.{0,3500})"
)

_COUNTS = frozenset({"id", "run", "runs", "scalars"})
_BYTES = frozenset({"bytes", "other"})

#: One tensor in a profiler's line: device, scalar type, sizes.
_TENSOR = re.compile(
    r"(?P<device>[A-Z]{2,12})(?:\([^)]{1,40}\))?:(?P<type>\w{1,30})\[(?P<sizes>[\d, ]{0,200})\]"
)


def sighting(line: str) -> Sighting | None:
    """What the profiler or the allocator says in one line; None: it is not theirs."""
    if "PyTorchMPS" in line:
        found = _SIGNPOST.search(line)
        return sighting(found["message"]) if found else None
    for one in _LINES:
        if one.needle not in line:
            continue
        match = one.regex.search(line)
        if match is not None:
            return _sighting(one, match)
    return None


def tensors(text: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Device, C++'s name of the dtype and sizes of each tensor that a profiler's line names."""
    for match in _TENSOR.finditer(text):
        sizes = tuple(int(number) for number in match["sizes"].split(",") if number.strip())
        yield match["device"].lower(), match["type"], sizes


def _sighting(one: _Line, match: re.Match[str]) -> Sighting:
    numbers: dict[str, int | float] = {}
    words: dict[str, str] = {}
    for name, text in match.groupdict().items():
        if text is None or name == "op":
            continue
        if name in _COUNTS:
            numbers[name] = int(text)
        elif name in _BYTES:
            numbers[name] = size(text)
        elif name.endswith("_ms"):
            numbers[name] = float(text)
        else:
            words[name] = text.strip()
    return Sighting(
        kind=one.kind,
        op=match.groupdict().get("op") or "",
        torch=one.torch,
        numbers=numbers,
        words=words,
        source=one.source,
        text=match[0].strip(),
    )
