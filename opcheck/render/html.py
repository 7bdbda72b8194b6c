"""HTML by the templates of ``template/``: a document as a page, and the pages with a script."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from opcheck.common.sanitize import for_html, for_json
from opcheck.common.text import filesize, plural
from opcheck.render import report_words
from opcheck.render.document import Document, Heading, Title, parts

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def environment() -> Environment:
    """Return the templates. Every text that is put in is escaped, and nothing in it is hidden."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("opcheck.render", "template"),
        autoescape=True,
        finalize=safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"filesize": filesize, "linked": link_addresses, "parts": parts}
    made.globals["plural"] = plural
    made.tests["text"] = lambda value: isinstance(value, str)
    return made


def safe(value: object) -> Markup:
    """Escape a text that is put into a page, unless it is HTML already."""
    return value if isinstance(value, Markup) else Markup(for_html(str(escape(value))))


#: A report holds texts of the checked program, so only pages of PyTorch and of Apple become links.
_ADDRESS = re.compile(
    r"(https://(?:github\.com/pytorch|(?:docs\.)?pytorch\.org|developer\.apple\.com)"
    r"/[\w./#?=&%+~-]*[\w/#=])"
)


def link_addresses(text: str) -> Markup:
    """Escape a text, and make each address of PyTorch and of Apple in it a link."""
    link, parts = Markup('<a href="{0}">{0}</a>'), enumerate(_ADDRESS.split(text))
    return Markup("").join(link.format(part) if number % 2 else safe(part) for number, part in parts)


class Pool:
    """Texts that occur often, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Return the number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))


def as_html(document: Document) -> str:
    """Write a document as one self-contained page."""
    blocks = tuple(document)
    title = next(block.text for block in blocks if isinstance(block, Heading))
    return environment().get_template("document.html").render(title=title, document=blocks)


def as_fragment(document: Document) -> str:
    """Write a document as HTML that a notebook puts into its own page."""
    blocks = (
        Heading(f"{block.answer.text}: {block.subject} on {block.target}; {block.numbers}")
        if isinstance(block, Title)
        else block
        for block in document
    )
    template = '{% import "blocks.html" as b %}<div class="opcheck">{{ b.blocks(document) }}</div>'
    return environment().from_string(template).render(document=tuple(blocks))


def with_script(name: str, data: Any, **context: object) -> str:
    """Write a page with its style, its script and its data inside, which loads nothing.

    Args:
        name: The name of the template, of its style and of its script.
        data: What the script reads.
        context: What the template needs.

    Raises:
        OSError: A template is not in the package.
    """
    folder = files("opcheck.render") / "template"
    script = (folder / f"{name}.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # The browser runs this script and no other, and loads nothing.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    template = environment().get_template(f"{name}.html")
    return template.render(
        policy=Markup(policy),  # of no other person's text
        style=Markup((folder / f"{name}.css").read_text(encoding="utf-8")),  # ours
        script=Markup(script),  # ours
        data=embed_json(data),
        **context,
    )


def embed_json(content: Any) -> Markup:
    """Write JSON that cannot end its script element."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(for_json(text.replace("<", "\\u003c")))  # it holds no <


class Series(NamedTuple):
    """States that are drawn together: their label, and the class that colours them."""

    label: str
    states: Sequence[str]
    css: str


SERIES = tuple(Series(**each) for each in report_words.SERIES)


class Bar(NamedTuple):
    """The overloads of a release that one series counts, as a rectangle."""

    series: Series
    number: int
    y: float
    height: float


_WIDTH, _HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 64, 40
_GAP = 0.28


def plot(counts: Mapping[str, Mapping[str, int]], macos: str) -> Markup:
    """Draw stacked bars, one for each release.

    Args:
        counts: By release line the number of overloads of each state, composites left out.
        macos: The macOS version that they were judged on.
    """
    drawn = [s for s in SERIES if any(_sum(row, s) for row in counts.values())]
    most = max(sum(_sum(row, s) for s in drawn) for row in counts.values())
    # Four lines mark round numbers.
    top = max(400, -(-most // 400) * 400)
    bottom = _HEIGHT - _BOTTOM
    scale = (bottom - _TOP) / top
    step = (_WIDTH - _LEFT - _RIGHT) / len(counts)
    legend, x = [], float(_LEFT)
    for series in drawn:
        legend.append((x, series))
        x += 36 + 6.6 * len(series.label)
    template = environment().get_template("coverage.svg")
    text = template.render(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        bottom=bottom,
        title=f"Operator overloads of PyTorch on MPS, by release (macOS {macos})",
        description="; ".join(f"torch {line}: {_describe(row, drawn)}" for line, row in counts.items()),
        legend=legend,
        grid=[(bottom - value * scale, value) for value in range(0, top + 1, top // 4)],
        bar_width=step * (1 - _GAP),
        releases=[
            (line, _LEFT + step * (number + _GAP / 2), _bars(row, drawn, bottom, scale))
            for number, (line, row) in enumerate(counts.items())
        ],
    )
    return Markup(f"{text}\n")  # a template escaped it


def _bars(row: Mapping[str, int], drawn: Sequence[Series], bottom: float, scale: float) -> list[Bar]:
    """Stack the bars of one release from the bottom up."""
    bars, y = [], bottom
    for series in drawn:
        number = _sum(row, series)
        y -= number * scale
        bars.append(Bar(series, number, y, number * scale))
    return bars


def _describe(row: Mapping[str, int], drawn: Sequence[Series]) -> str:
    return ", ".join(f"{_sum(row, series)} {series.label}" for series in drawn)


def _sum(row: Mapping[str, int], series: Series) -> int:
    return sum(row[state] for state in series.states)
