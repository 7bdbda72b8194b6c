"""The filters of the templates: the words of records, and links that start from the page being written."""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from opcheck.features.site import addresses
from opcheck.features.site.page_records import Listed, Macos, ModelPage, OperatorPage, Outcome
from opcheck.render import wording

_OP = re.compile(r"\b(?:aten|torchvision|torchaudio)::\w+(?:\.\w+)?")
_ISSUE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")


def filters(path: str, pages: Collection[str]) -> dict[str, Callable[..., Any]]:
    """Return the filters for one page.

    Args:
        path: of the page that is written.
        pages: the paths of all pages: nothing else is linked to.
    """
    top = addresses.to_top(path)

    def link(address: str, name: str) -> Markup:
        code = Markup("<code>{}</code>").format(name)
        if address not in pages:
            return code
        return Markup('<a href="{}{}.html">{}</a>').format(top, address, code)

    def op(name: str) -> Markup:
        return link(addresses.operator(name), name)

    def link_operators(text: str) -> Markup:
        """Turn the names of operators in a text into links."""
        parts, end = [], 0
        for match in _OP.finditer(text):
            parts += [escape(text[end : match.start()]), op(match[0])]
            end = match.end()
        return Markup("").join((*parts, escape(text[end:])))

    def release(line: str) -> Markup:
        return Markup('<a href="{}{}.html">{}</a>').format(top, addresses.release(line), line)

    def statement(named: tuple[str, str]) -> str:
        return top + addresses.statement(*named)

    return {
        **_OF_ANY_PAGE,
        "op": op,
        "model": lambda name: link(addresses.model(name), name),
        "linked": link_operators,
        "release": release,
        "statement": statement,
    }


def _address(text: str) -> Markup:
    """Return a link to an address, an issue by its number; any other text as it is."""
    if not text.startswith("https://"):
        return Markup("<code>{}</code>").format(text)
    issue = _ISSUE.fullmatch(text)
    name = f"{issue[1]}#{issue[2]}" if issue else text
    return Markup('<a href="{}">{}</a>').format(text, name)


@functools.cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False})


def _namespaces(listed: Iterable[Listed]) -> list[tuple[str, list[Listed]]]:
    groups = groupby(listed, key=lambda operator: operator.name.partition("::")[0])
    return [(namespace, list(group)) for namespace, group in groups]


#: What a model's headline counts as, for its sign and colour; all others are unknown.
_HEADLINES = {
    "runs natively": "native",
    "runs, partly on the CPU": "fallback_always",
    "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1": "fallback_env",
    "fails": "unsupported",
}


def headline_state(headline: str) -> str:
    """Return the state whose sign a headline takes."""
    return _HEADLINES.get(headline, "unknown")


def lines(span: Sequence[str]) -> str:
    """Return ``2.3`` or ``2.3 to 2.8``."""
    return " to ".join(dict.fromkeys((span[0], span[-1])))


def macos(span: Macos) -> str:
    """Return ``any``, ``before 14.0``, ``14.0 to 15.0`` or ``14.0+``."""
    if span.since is None:
        return "any" if span.until is None else f"before {span.until}"
    return f"{span.since}+" if span.until is None else f"{span.since}, before {span.until}"


def dtypes(states: Mapping[str, str]) -> str:
    """Return ``refused: float64; CPU always: bool``."""
    return wording.group_words({name: wording.SHORT[state] for name, state in states.items()})


def dtype_changes(changes: Mapping[str, tuple[str, str]]) -> str:
    """Return ``refused, now native: bfloat16``."""
    words = wording.SHORT
    return wording.group_words(
        {n: f"{words[was]}, now {words[now]}" for n, (was, now) in changes.items()}
    )


def targets(systems_of: Mapping[str, Sequence[str]], every: Sequence[str]) -> str:
    """Return ``torch 2.8 to 2.13 on macOS 14.0, 15.0``: neighbours in ``every`` with the same macOS are merged."""
    parts = []
    for systems, group in groupby(every, key=lambda line: tuple(systems_of.get(line, ()))):
        if systems:
            parts.append(f"torch {lines(list(group))} on macOS {', '.join(systems)}")
    return "; ".join(parts)


def strip(page: OperatorPage, every: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the main overload on the newest macOS: release lines, state, and how many releases that is."""
    states = dict.fromkeys(every, "absent")
    for row in page.tables[page.overloads[0].table]:
        if row.macos.until is None:
            first, last = (every.index(line) for line in row.torch)
            states |= dict.fromkeys(every[first : last + 1], row.state)
    for state, group in groupby(every, key=states.__getitem__):
        span = list(group)
        yield lines(span), state, len(span)


def kinds(outcomes: Iterable[Outcome]) -> list[tuple[str, bool]]:
    """Return the modes of a model, each without the fallback variable first."""
    return sorted({(outcome.mode, outcome.fallback) for outcome in outcomes})


def grid(
    page: ModelPage,
    mode: str,
    fallback: bool,  # noqa: FBT001  (of the table's row)
) -> Iterator[tuple[str, list[Outcome | None]]]:
    """Yield a row per release: the outcome on each macOS of the sweep; None: not swept."""
    outcomes = {
        (line, system): outcome
        for outcome in page.outcomes
        if (outcome.mode, outcome.fallback) == (mode, fallback)
        for line, systems in outcome.targets.items()
        for system in systems
    }
    for line in reversed(page.torch):
        yield line, [outcomes.get((line, system)) for system in page.macos]


def sentence(reason: str) -> str:
    """Capitalize a text, unless it begins with an operator's name, and end it with a full stop."""
    first = reason.partition(" ")[0]
    return f"{reason if '::' in first else reason[:1].upper() + reason[1:]}."


_WORDS: tuple[Callable[..., Any], ...] = (
    *(dtype_changes, dtypes, grid, headline_state, kinds),
    *(lines, macos, sentence, strip, targets),
)
_OF_ANY_PAGE: dict[str, Callable[..., Any]] = {
    "address": _address,
    "groupby_namespace": _namespaces,
    "label": wording.LABELS.__getitem__,
    # It escapes. Code that scrolls sideways can be reached by keyboard.
    "markdown": lambda text: Markup(
        _markdown().render(text).replace("<pre>", '<pre tabindex="0">')
    ),
    "prefixed": lambda names, prefix: [f"{prefix}{name}" for name in names],
    "since": wording.write_since,
    **{word.__name__: word for word in _WORDS},
}
