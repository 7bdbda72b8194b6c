"""The report of a sweep as Markdown or as one HTML page."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from opcheck.common.sanitize import finish_document
from opcheck.common.text import and_more, plural, shorten
from opcheck.common.vocabulary import HEADLINES
from opcheck.features.sweep.sweep_folder import SweepDescription, read
from opcheck.features.sweep.sweep_summary import MOST, OWNERS, Summary
from opcheck.render.document import Block, Bullets, Column, Heading, Lines, Table, table_of
from opcheck.render.html import as_html
from opcheck.render.markdown import as_markdown

_BEST_FIRST = tuple(reversed(HEADLINES))
#: names that are written out where a release brings more
_NAMED = 8
#: characters of a message
_MESSAGE = 160


def render(folder: Path, format_name: str) -> str:
    """Write the report of a sweep's folder.

    Raises:
        UsageError: there is no sweep in it, or another version wrote it.
    """
    about, results = read(folder)
    document = _document(about, Summary(results, about.targets, about.modes))
    text = as_markdown(document) if format_name == "markdown" else as_html(document)
    return finish_document(text, format_name)


def _document(about: SweepDescription, summary: Summary) -> Iterator[Block]:
    models = len({model for model, _ in summary.headlines})
    last = list(summary.newest.values())[-1]
    packages = ", ".join(f"{name} {version}" for name, version in about.packages.items())
    each = summary.seconds / max(len(summary.headlines), 1)
    runs = plural(summary.captures, "run")
    cost = f"they and the judging took {summary.seconds:,.0f} s"
    yield Heading(f"{plural(models, 'model')} on {plural(len(about.targets), 'target')}", 1)
    yield Lines(
        (
            f"What {' and '.join(about.modes)} of each come to on each torch release and macOS, "
            + ("in a small configuration of its own family. " if about.small else "")
            + "Nothing was observed on a Mac: the verdicts follow from the releases' registrations.",
            f"{packages}; op lists {about.op_lists}.",
            f"{runs} of the models served all targets; {cost}, {each:.1f} s for a model and mode.",
        )
    )
    yield Heading("Models by release")
    for mode in summary.modes:
        yield Lines((f"{mode}:",))
        targets = reversed(summary.targets)
        yield _headlines(("target",), (((_words(t),), summary.counts(t, mode)) for t in targets))
    yield Heading(f"Libraries, on {_words(last)}")
    yield _by_library(summary, last)
    yield from _families(summary, last)
    yield Heading("What each release brought")
    yield from _changes_by_release(summary)
    yield Heading("The most harmful operators of each release")
    yield Lines(
        ("By models and modes that they stop where no variable is set, then by those that they send to the CPU.",)
    )
    for target in reversed(summary.newest.values()):
        yield from _harms(summary, target)
    yield from _failures(summary)


def _headlines(
    headers: tuple[str, ...], counts: Iterable[tuple[tuple[str, ...], Counter[str]]], zero: str = "0"
) -> Table:
    """Make a table of how many models have each headline, the best first."""
    rows = ((*key, *(str(each[name] or zero) for name in _BEST_FIRST)) for key, each in counts)
    return Table((*headers, *_BEST_FIRST), tuple(rows))


def _by_library(summary: Summary, target: str) -> Table:
    rows = {}
    for library in summary.libraries():
        for mode in summary.modes:
            counts = summary.counts(target, mode, library)
            rows[library, mode, str(counts.total())] = counts
    return _headlines(("library", "mode", "models"), rows.items())


def _families(summary: Summary, target: str) -> Iterator[Block]:
    families = summary.families(target)
    yield Heading(f"Families with models that do not run natively, on {_words(target)}")
    every = len(set(summary.homes.values()))
    yield Lines((f"{len(families)} of {every} families; models and modes:",))
    if families:
        yield _headlines(("library", "family"), families.items(), zero="")


def _changes_by_release(summary: Summary) -> Iterator[Block]:
    targets = list(summary.newest.values())
    if len(targets) == 1:
        yield Lines(("One release was swept.",))
    for before, target in reversed(list(pairwise(targets))):
        brought = summary.brought(before, target)
        runs, natively, lost = (brought.get(change, []) for change in ("runs", "natively", "lost"))
        counts = f"{len(runs)} run that did not, {len(natively)} more run natively, {len(lost)} run no more"
        named = (("runs now", runs), ("runs no more", lost))
        names = (f"{words}: {and_more(names, _NAMED)}" for words, names in named if names)
        yield Bullets((f"{_words(target)}: {counts}", *names))


def _harms(summary: Summary, target: str) -> Iterator[Block]:
    columns: dict[str, Column] = {"operator": "op", "calls are": lambda harm: ", ".join(harm.outcomes)}
    columns |= {"stops": "stopped", "sends to the CPU": "slowed", "families": "families"}
    yield Heading(_words(target), 3)
    if harms := summary.harms(target):
        yield table_of(harms[:MOST], columns, code=(0,))
    else:
        yield Lines(("None: every call of every model is native.",))


def _failures(summary: Summary) -> Iterator[Block]:
    owners = summary.owners
    yield Heading("Models without a verdict")
    failing = {owner: {(r.model.spec, r.mode) for r, _, _ in owners.get(owner, ())} for owner in OWNERS}
    yield Bullets(tuple(f"{len(failing[owner])} models and modes: {whose}" for owner, whose in OWNERS.items()))
    rows = tuple(
        (result.model.spec, result.mode, owner, why, shorten(" ".join(failed.message.split()), _MESSAGE))
        for owner in OWNERS
        for result, failed, why in owners.get(owner, ())
    )
    if rows:
        yield Table(("model", "mode", "whose", "why", "message"), rows)


def _words(target: str) -> str:
    torch, _, macos = target.removesuffix("+").partition("/")
    variable = ", PYTORCH_ENABLE_MPS_FALLBACK=1" if target.endswith("+") else ""
    return f"torch {torch}, macOS {macos.removesuffix('.0')}{variable}"
