"""What ``opcheck probe`` found, as a page."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from opcheck.common.text import plural
from opcheck.data.device_evidence import OUTCOMES
from opcheck.render.document import Block, Bullets, Document, Heading, Lines, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.data.device_evidence import Evidence, Result

#: What is wrong with the device.
BAD = ("wrong", "raises", "crashes", "too long")
#: What is listed one by one.
_TOLD = (*BAD, "falls back")
#: characters of a text, and entries of a list, in a page for people
_TEXT, _MOST = 240, 60
_JUDGED = (
    "each call of an operator was made again in float64 on the CPU, from the device's own inputs: a result is wrong "
    "where it is beyond the tolerance of its dtype, and farther off than the CPU's own in that dtype"
)
_HOW = (
    _JUDGED,
    "what works with these samples may fail with others",
)


def document(found: Evidence) -> Document:
    """The page: counts by dtype, then what did not work, one by one."""
    return tuple(_blocks(found))


def counts(found: Evidence) -> str:
    """The results in one line."""
    by_outcome = Counter(result.outcome for result in found.results)
    texts = [f"{by_outcome[name]:,} {name}" for name in OUTCOMES if by_outcome[name]]
    part = "" if found.complete else " (not all of them yet)"
    return f"{plural(len(found.results), 'result')}{part}: {', '.join(texts) or 'none'}"


def _blocks(found: Evidence) -> Iterator[Block]:
    machine = found.machine
    yield Heading(f"PyTorch's operator database on {machine.device}", 1)
    where = f"{machine.os} {machine.os_version} {machine.arch}, torch {machine.torch}"
    yield Lines((f"{machine.device} ({machine.device_name}), {where}", f"{counts(found)}."))
    yield Heading("Outcomes by dtype")
    names = [name for name in OUTCOMES if any(result.outcome == name for result in found.results)]
    rows = dict.fromkeys((result.dtype, result.phase) for result in found.results)
    table = Counter((result.dtype, result.phase, result.outcome) for result in found.results)
    yield Table(
        ("dtype", "phase", *names),
        tuple((*row, *(str(table[(*row, name)]) for name in names)) for row in rows),
    )
    for name in _TOLD:
        of_it = [result for result in found.results if result.outcome == name]
        if of_it:
            yield Heading(f"{name.capitalize()}: {OUTCOMES[name]}")  # type: ignore[index]  # one of them
            more = [f"and {len(of_it) - _MOST} more"] if len(of_it) > _MOST else []
            yield Bullets((*map(_result, of_it[:_MOST]), *more))
    yield Heading("How it was found")
    settings = found.settings
    how = f"up to {settings.samples} samples of each, {settings.seconds:g} s at most"
    yield Bullets((f"{how}; PYTORCH_ENABLE_MPS_FALLBACK={int(settings.cpu_fallback)}", *_HOW))


def _result(one: Result) -> str:
    what = ", ".join((one.opinfo, one.dtype, *([] if one.phase == "forward" else [one.phase])))
    how_often = f" ({one.failed} of {plural(one.samples, 'sample')})" if one.failed else ""
    op = f" in {one.op}" if one.op else ""
    text = " ".join(one.text.split())
    text = text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
    inputs = f" -- inputs {', '.join(one.inputs)}" if one.inputs else ""
    return f"{what}{op}{how_often}: {text}{inputs}"
