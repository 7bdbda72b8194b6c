"""The coverage over the releases as an SVG of stacked bars."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from opcheck.render.html import environment


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
    text = (
        environment()
        .get_template("coverage.svg")
        .render(
            width=_WIDTH,
            height=_HEIGHT,
            left=_LEFT,
            right=_WIDTH - _RIGHT,
            bottom=bottom,
            title=f"Operator overloads of PyTorch on MPS, by release (macOS {macos})",
            description="; ".join(
                f"torch {line}: " + ", ".join(f"{_sum(row, s)} {s.label}" for s in drawn)
                for line, row in counts.items()
            ),
            legend=legend,
            grid=[(bottom - value * scale, value) for value in range(0, top + 1, top // 4)],
            bar_width=step * (1 - _GAP),
            releases=[
                (line, _LEFT + step * (number + _GAP / 2), _bars(row, drawn, bottom, scale))
                for number, (line, row) in enumerate(counts.items())
            ],
        )
    )
    return Markup(f"{text}\n")  # a template escaped it


def _bars(
    row: Mapping[str, int], drawn: Sequence[Series], bottom: float, scale: float
) -> list[Bar]:
    """Stack the bars of one release from the bottom up."""
    bars, y = [], bottom
    for series in drawn:
        number = _sum(row, series)
        y -= number * scale
        bars.append(Bar(series, number, y, number * scale))
    return bars


def _sum(row: Mapping[str, int], series: Series) -> int:
    return sum(row[state] for state in series.states)
