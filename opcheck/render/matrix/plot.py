"""The coverage over the releases as an SVG: drawn by hand, since it is twenty rectangles a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Series(NamedTuple):
    """States that are drawn together: their label, and the class that colours them."""

    label: str
    states: tuple[str, ...]
    css: str


SERIES = (
    Series("native", ("native",), "native"),
    Series("CPU inside the kernel or always", ("fallback_internal", "fallback_always"), "always"),
    Series("CPU with the variable", ("fallback_env",), "env"),
    Series("unsupported", ("unsupported",), "unsupported"),
    Series("unknown", ("unknown",), "unknown"),
)

_WIDTH, _HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 64, 40
_GAP = 0.28
#: A bar that is lower than this has no room for its number.
_ROOM = 13.0

#: Scoped by the drawing's id, since a page has rules of its own.
_STYLE = "".join(
    f"#coverage-plot{rule}"
    for rule in (
        '{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;background:#fff}',
        " text{fill:#3b4252}",
        " .title{font-size:15px;font-weight:600;fill:#1d2433}",
        " .grid{stroke:#e4e7ee}",
        " .inside{fill:#fff;font-size:10px;text-anchor:middle}",
        " .middle{text-anchor:middle}",
        " .end{text-anchor:end}",
        " .native{fill:#1f6f8b}",
        " .always{fill:#e3b23c}",
        " .env{fill:#d9772b}",
        " .unsupported{fill:#9b2743}",
        " .unknown{fill:#8b93a3}",
    )
)
_DARK = "".join(
    f"#coverage-plot{rule}"
    for rule in (
        "{background:#12161f}",
        " text{fill:#b9c2d3}",
        " .title{fill:#eef1f7}",
        " .grid{stroke:#2a3140}",
        " .inside{fill:#fff}",
        " .native{fill:#2b87a8}",
        " .unsupported{fill:#b8375a}",
    )
)


def plot(counts: Mapping[str, Mapping[str, int]], macos: str) -> str:
    """Stacked bars, one a release.

    Args:
        counts: by release line the number of overloads of each state, composites left out.
        macos: the macOS version that they were judged on.
    """
    return "\n".join(_lines(counts, macos)) + "\n"


def _lines(counts: Mapping[str, Mapping[str, int]], macos: str) -> Iterator[str]:
    drawn = [s for s in SERIES if any(_sum(row, s) for row in counts.values())]
    top = _round_up(max(sum(_sum(row, s) for s in drawn) for row in counts.values()))
    scale = (_HEIGHT - _TOP - _BOTTOM) / top
    title = f"Operator overloads of PyTorch on MPS, by release (macOS {macos})"
    said = "; ".join(
        f"torch {line}: " + ", ".join(f"{_sum(row, s)} {s.label}" for s in drawn)
        for line, row in counts.items()
    )
    yield (
        f'<svg id="coverage-plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-labelledby="plot-title plot-desc">'
    )
    yield f'<title id="plot-title">{escape(title)}</title>'
    yield f'<desc id="plot-desc">{escape(said)}</desc>'
    yield f"<style>{_STYLE}@media (prefers-color-scheme:dark){{{_DARK}}}</style>"
    yield f'<text class="title" x="{_LEFT}" y="22">{escape(title)}</text>'
    x = float(_LEFT)
    for series in drawn:
        yield f'<rect class="{series.css}" x="{x:.0f}" y="34" width="12" height="12" rx="2"/>'
        yield f'<text x="{x + 17:.0f}" y="44">{escape(series.label)}</text>'
        x += 36 + 6.6 * len(series.label)
    for value in range(0, top + 1, top // 4):
        y = _HEIGHT - _BOTTOM - value * scale
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{value:,}</text>'
    step = (_WIDTH - _LEFT - _RIGHT) / len(counts)
    for number, (line, row) in enumerate(counts.items()):
        left = _LEFT + step * (number + _GAP / 2)
        yield from _bar(row, drawn, left, step * (1 - _GAP), scale)
        middle = left + step * (1 - _GAP) / 2
        yield f'<text class="middle" x="{middle:.1f}" y="{_HEIGHT - _BOTTOM + 18}">{line}</text>'
    yield f'<text class="middle" x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 4}">torch release</text>'
    yield "</svg>"


def _bar(
    row: Mapping[str, int], drawn: list[Series], left: float, width: float, scale: float
) -> Iterator[str]:
    y = float(_HEIGHT - _BOTTOM)
    for series in drawn:
        number = _sum(row, series)
        height = number * scale
        y -= height
        if number:
            yield (
                f'<rect class="{series.css}" x="{left:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}"><title>{number} {escape(series.label)}</title></rect>'
            )
        if height >= _ROOM:
            yield (
                f'<text class="inside" x="{left + width / 2:.1f}" y="{y + height / 2 + 4:.1f}">'
                f"{number}</text>"
            )


def _sum(row: Mapping[str, int], series: Series) -> int:
    return sum(row[state] for state in series.states)


def _round_up(value: int) -> int:
    """To a multiple of 400, so that four lines stand at round numbers."""
    return max(400, -(-value // 400) * 400)
