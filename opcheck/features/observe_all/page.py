"""Predicted and observed, as a page."""

from collections.abc import Iterator

from opcheck.common.text import and_more, plural, shorten
from opcheck.device.observation_store import ObservedContradiction, ObservedSummary
from opcheck.render.document import Block, Bullets, Heading, Lines, section, table_of

#: contradictions in a page, characters of a text
_MOST, _TEXT = 100, 200


def document(summary: ObservedSummary) -> Iterator[Block]:
    """Make the page: how often predictions were right by host, what contradicts them, what failed."""
    yield Heading("Predicted and observed", 1)
    agreed = sum(each.agreed for each in summary.agreements)
    against = sum(each.contradicted for each in summary.agreements)
    partial = f", {summary.partial} of them partial" if summary.partial else ""
    differences = plural(len(summary.contradictions), "difference")
    runs = plural(summary.runs, "run")
    yield Lines((f"{runs}{partial}: {agreed:,} agree, {against:,} contradict by {differences}.",))
    if any(each.gpu == "emulated" for each in summary.agreements):
        yield Lines(("Emulated hosts test opcheck, and say nothing of a Mac.",))
    if summary.agreements:
        host = {"what": "kind", "torch": "torch", "macOS": "macos", "GPU": "gpu"}
        counts = {"agree": "agreed:,", "contradict": "contradicted:,", "unknown": "unknown:,"}
        yield table_of(summary.agreements, {**host, **counts})
    texts = [*map(_contradiction, summary.contradictions[:_MOST])]
    more = len(summary.contradictions) - _MOST
    texts += [f"and {more} more"] if more > 0 else []
    yield from section("Contradictions", Bullets(tuple(texts)) if texts else Lines(("none",)))
    yield from section("Failed steps", Bullets(summary.failed))
    yield from section("Hosts", Bullets(summary.hosts))


def _contradiction(each: ObservedContradiction) -> str:
    dtypes = f" ({and_more(each.dtypes, 3)})" if each.dtypes else ""
    counts = {"a real GPU": each.real, "a virtual or emulated GPU": each.virtual}
    hosts = ", ".join(f"{plural(n, 'run')} on {gpu}" for gpu, n in counts.items() if n)
    where = f"torch {', '.join(each.torch)}, macOS {', '.join(each.macos)}; {hosts}"
    text = f": {shorten(' '.join(each.text.split()), _TEXT)}" if each.text else ""
    return (
        f"{each.op}{dtypes}: predicted {each.predicted}, observed {each.observed} in "
        f"{and_more(each.subjects, 3)} ({where}){text}"
    )
