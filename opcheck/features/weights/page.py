"""The answer to ``opcheck weights`` as a page."""

from collections.abc import Collection, Iterator

from opcheck.common.text import filesize, plural
from opcheck.features.weights.weights_records import WORKS, MethodsAnswer, WeightsAnswer
from opcheck.render.document import (
    Block,
    Bullets,
    Column,
    Facts,
    Heading,
    Lines,
    section,
    size_of,
    table_of,
)
from opcheck.render.wording import NOT_CHECKED

#: What each outcome is called.
_WORDS = {
    "loads": "loads",
    "casts": "loads, cast to dense weights",
    "raises_at_load": "raises when it is loaded",
    "raises_at_run": "loads, and raises at the first call",
    "runs_on_cpu": "loads, and computes on the CPU",
    "wrong": "loads, and gives WRONG numbers",
    "unknown": "could not tell",
}
_SHOWN = 4
_PARTS = {"part": "part", "outcome": "outcome", "since": "since", "why": "because"}
_FILES: dict[str, Column] = {
    "file": "name",
    "outcome": "outcome",
    "size": size_of("bytes"),
    "dtypes": lambda each: ", ".join(each.dtypes),
}


def document(
    answer: WeightsAnswer, shown: Collection[str] = ("evidence", "verbose")
) -> Iterator[Block]:
    """Make the page: the outcome, why, what to do, the memory; the parts and the evidence on request."""
    yield Heading(
        f"{answer.source}: {_WORDS[answer.outcome]} on torch {answer.torch}, macOS {answer.macos}",
        1,
    )
    yield Facts(tuple(_facts(answer)))
    if "verbose" in shown:
        yield from section("Parts", table_of(answer.parts, _PARTS, code=(0,)))
        yield from section("Files", table_of(answer.files, _FILES, code=(0,), right=(2,)))
    if "evidence" in shown or "verbose" in shown:
        yield from section("Evidence", Bullets(answer.evidence))
    yield Lines((" ".join(answer.not_checked[:1]) + " More: -v, --evidence.",))


def methods_document(answer: MethodsAnswer) -> Iterator[Block]:
    """Make the page of all methods: how many are decided, and a row each."""
    decided = sum(part.outcome != "unknown" for part in answer.methods)
    share = f"{decided} of {plural(len(answer.methods), 'method')} decided"
    yield Heading(f"{share} on torch {answer.torch}, macOS {answer.macos}", 1)
    columns: dict[str, Column] = {"method": "part", **_PARTS}
    del columns["part"]
    columns["evidence"] = lambda part: "; ".join(part.evidence)
    yield table_of(answer.methods, columns, code=(0,), wide=(4,))
    yield Lines((NOT_CHECKED,))


def _facts(answer: WeightsAnswer) -> Iterator[tuple[str, str]]:
    kind = f"{answer.format}{answer.method and f', {answer.method}'}"
    yield "format", f"{kind}, {plural(len(answer.files), 'file')}, {filesize(answer.bytes)}"
    dtypes = [f"{name} ({count:,})" for name, count in answer.dtypes.items()]
    more = f" and {len(dtypes) - _SHOWN} more" if len(dtypes) > _SHOWN else ""
    if dtypes:
        yield "dtypes", ", ".join(dtypes[:_SHOWN]) + more
    if answer.because:
        yield "why", answer.because
    if answer.text and answer.text != answer.because:
        yield "prints", answer.text
    if answer.since and answer.outcome not in WORKS:
        yield "since", f"works from {answer.since} on"
    if answer.instead:
        yield "instead", answer.instead
    if answer.memory:
        mac = answer.memory.smallest_mac
        fits = f"fits a Mac of {mac} GB" if mac else "fits no Mac that opcheck has figures of"
        loading = filesize(answer.memory.loading)
        yield "memory", f"{filesize(answer.memory.loaded)}, {loading} while loading; {fits}"
