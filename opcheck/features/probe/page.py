"""The answer to ``opcheck probe`` as a page."""

from collections import Counter
from collections.abc import Iterator

from opcheck.common.text import plural, shorten
from opcheck.data.device_evidence import OUTCOMES, EvidenceFile, Result
from opcheck.render.document import Block, Bullets, Heading, Lines, Table

#: What is wrong with the device.
BAD = ("wrong", "raises", "crashes", "too long")
#: The outcomes with a list of their results.
_LISTED = (*BAD, "falls back")
#: characters of a text, and entries of a list, in a page for people
_TEXT, _MOST = 240, 60
_JUDGED = (
    "each call of an operator was made again in float64 on the CPU, from the device's own inputs: a result is wrong "
    "where it is beyond the tolerance of its dtype, and farther off than the CPU's own in that dtype"
)
_HOW = (_JUDGED, "what works with these samples may fail with others")


def counts(evidence: EvidenceFile) -> str:
    """Count the results in one line."""
    by_outcome = Counter(result.outcome for result in evidence.results)
    texts = [f"{by_outcome[name]:,} {name}" for name in OUTCOMES if by_outcome[name]]
    part = "" if evidence.complete else " (not all of them yet)"
    return f"{plural(len(evidence.results), 'result')}{part}: {', '.join(texts) or 'none'}"


def document(evidence: EvidenceFile) -> Iterator[Block]:
    """Make the page: counts by dtype, then each result that did not work."""
    machine = evidence.machine
    yield Heading(f"PyTorch's operator database on {machine.device}", 1)
    where = f"{machine.os} {machine.os_version} {machine.arch}, torch {machine.torch}"
    yield Lines((f"{machine.device} ({machine.device_name}), {where}", f"{counts(evidence)}."))
    yield Heading("Outcomes by dtype")
    outcomes_of = {result.outcome for result in evidence.results}
    names = [name for name in OUTCOMES if name in outcomes_of]
    rows = dict.fromkeys((result.dtype, result.phase) for result in evidence.results)
    table = Counter((result.dtype, result.phase, result.outcome) for result in evidence.results)
    cells = ((*row, *(str(table[(*row, name)]) for name in names)) for row in rows)
    yield Table(("dtype", "phase", *names), tuple(cells))
    for name in _LISTED:
        outcomes = [result for result in evidence.results if result.outcome == name]
        if outcomes:
            yield Heading(f"{name.capitalize()}: {OUTCOMES[name]}")  # type: ignore[index]  # one of them
            more = [f"and {len(outcomes) - _MOST} more"] if len(outcomes) > _MOST else []
            yield Bullets((*map(_result, outcomes[:_MOST]), *more))
    yield Heading("How it was found")
    settings = evidence.settings
    how = f"up to {settings.samples} samples of each, {settings.seconds:g} s at most"
    yield Bullets((f"{how}; PYTORCH_ENABLE_MPS_FALLBACK={int(settings.cpu_fallback)}", *_HOW))


def _result(result: Result) -> str:
    what = ", ".join((result.opinfo, result.dtype, *([] if result.phase == "forward" else [result.phase])))
    how_often = f" ({result.failed} of {plural(result.samples, 'sample')})" if result.failed else ""
    op = f" in {result.op}" if result.op else ""
    text = shorten(" ".join(result.text.split()), _TEXT)
    inputs = f" -- inputs {', '.join(result.inputs)}" if result.inputs else ""
    return f"{what}{op}{how_often}: {text}{inputs}"
