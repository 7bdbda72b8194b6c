"""The answer to ``opcheck verify`` as a page."""

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.common.tool import VERSION
from opcheck.device.verify import Pair, ReportedCalls, Verification, ratio
from opcheck.render.document import Block, Bullets, Column, Heading, Lines, Table, section, table_of

#: How many entries of a list are seen at once.
_SHOWN = 20
_RATES: dict[str, Column] = {
    **{name: name for name in ("status", "predicted", "observed", "both")},
    "precision": lambda rate: ratio(rate.both, rate.predicted),
    "recall": lambda rate: ratio(rate.both, rate.observed),
}


def document(verification: Verification) -> Iterator[Block]:
    """Make the page: how much agrees, then what does not."""
    where = f"torch {verification.torch}, macOS {verification.macos}"
    sides = f"{verification.prediction} compared with {verification.observation}"
    yield Heading(f"{sides} ({where})", 1)
    unknown = sum(pair.predicted == "unknown" for pair in verification.pairs)
    counts = [plural(len(verification.agreements), "agreement")]
    counts.append(plural(len(verification.contradictions), "contradiction"))
    counts += [f"{unknown:,} with an unknown prediction"] if unknown else []
    yield Lines((f"{plural(len(verification.pairs), 'pair')}: {', '.join(counts)}",))
    if verification.rates:
        yield table_of(verification.rates, _RATES)
    for title, items in (
        ("Contradictions", map(_contradiction, verification.contradictions)),
        ("Observed, not predicted", map(_place, verification.unpredicted)),
        ("Predicted, not observed", map(_place, verification.unobserved)),
        ("Notes", verification.notes),
    ):
        yield from section(title, Bullets(tuple(items), _SHOWN))


def write_shared(verification: Verification) -> Iterator[Block]:
    """Make the text to share: the machine and its versions, then the page."""
    yield Heading(f"opcheck verify {verification.prediction} --here", 1)
    rows = (
        ("opcheck", VERSION),
        ("torch", verification.torch),
        ("macOS", " ".join(filter(None, (verification.macos, verification.build)))),
        ("machine", verification.machine),
    )
    yield Table(("", "version"), rows)
    yield Lines(("This text contains names, files and lines of the model: read it before you share it.",))
    yield from document(verification)


def _contradiction(pair: Pair) -> str:
    at = f" at {pair.line}" if pair.line else ""
    return f"{pair.op}{at}: predicted {pair.predicted}, observed {pair.observed}; {pair.seen}"


def _place(place: ReportedCalls) -> str:
    at = f" at {place.line}" if place.line else ""
    return f"{place.op}{at}: {place.status}"
