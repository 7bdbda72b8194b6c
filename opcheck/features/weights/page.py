"""The answer to ``opcheck weights`` as a page."""

from collections.abc import Collection, Iterator

from opcheck.common.text import and_more, filesize, plural
from opcheck.common.yaml_text import load_shipped
from opcheck.features.weights.weights_records import WORKS, MethodsAnswer, WeightsAnswer
from opcheck.render import document as blocks
from opcheck.render.wording import NOT_CHECKED

#: What each outcome is called.
_WORDS: dict[str, str] = load_shipped(__file__, "outcome_words.yaml")
_SHOWN = 4
#: A reason has its release before it, because a terminal has room for one column of sentences.
_ABOUT: dict[str, blocks.Column] = {
    "outcome": "outcome",
    "why": lambda part: f"{part.since and f'since {part.since}: '}{part.because}",
}
_PARTS: dict[str, blocks.Column] = {"part": "part", **_ABOUT}
_FILES: dict[str, blocks.Column] = {
    "file": "name",
    "outcome": "outcome",
    "size": blocks.size_of("bytes"),
    "dtypes": lambda each: ", ".join(each.dtypes),
}


def document(answer: WeightsAnswer, shown: Collection[str] = ("evidence", "verbose")) -> Iterator[blocks.Block]:
    """Make the page: the outcome, why, what to do, the memory; the parts and the evidence on request."""
    yield blocks.Heading(f"{answer.source}: {_WORDS[answer.outcome]} on torch {answer.torch}, macOS {answer.macos}", 1)
    yield blocks.Facts(tuple(_facts(answer)))
    if "verbose" in shown:
        yield from blocks.section("Parts", blocks.table_of(answer.parts, _PARTS, code=(0,), prose=(2,)))
        yield from blocks.section("Files", blocks.table_of(answer.files, _FILES, code=(0,), right=(2,)))
    if "evidence" in shown or "verbose" in shown:
        yield from blocks.section("Evidence", blocks.Bullets(answer.evidence))
    yield blocks.Lines((" ".join(answer.not_checked[:1]) + " More: -v, --evidence.",))


def methods_document(answer: MethodsAnswer) -> Iterator[blocks.Block]:
    """Make the page of all methods: how many are decided, and a row each."""
    decided = sum(part.outcome != "unknown" for part in answer.methods)
    share = f"{decided} of {plural(len(answer.methods), 'method')} decided"
    yield blocks.Heading(f"{share} on torch {answer.torch}, macOS {answer.macos}", 1)
    evidence: dict[str, blocks.Column] = {"evidence": lambda part: "; ".join(part.evidence)}
    yield blocks.table_of(answer.methods, {"method": "part", **_ABOUT, **evidence}, code=(0,), wide=(3,), prose=(2,))
    yield blocks.Lines((NOT_CHECKED,))


def _facts(answer: WeightsAnswer) -> Iterator[tuple[str, str]]:
    kind = f"{answer.format}{answer.method and f', {answer.method}'}"
    yield "format", f"{kind}, {plural(len(answer.files), 'file')}, {filesize(answer.bytes)}"
    dtypes = [f"{name} ({count:,})" for name, count in answer.dtypes.items()]
    if dtypes:
        yield "dtypes", and_more(dtypes, _SHOWN)
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
