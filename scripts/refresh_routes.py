"""Write reports/routes.md: what computes the kernels of each release, and how the table agrees with the sources.

tests/data/route_readings.json has pairs of an overload and a release that were drawn at random and decided by reading
the release's sources alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from opcheck.common.files import write_text
from opcheck.common.text import percent
from opcheck.common.vocabulary import ROUTE_WORDS, ROUTES
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists, load
from opcheck.render.document import Block, Bullets, Heading, Lines, Table
from opcheck.render.markdown import as_markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "reports" / "routes.md"
READINGS = ROOT / "tests" / "data" / "route_readings.json"


def disagreements(lists: OpLists) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many pairs were read, and those that the table contradicts, with what both have and the reason."""
    read = json.loads(READINGS.read_text(encoding="utf-8"))
    wrong = []
    for op, line, ways, *why in read["pairs"]:
        route = routes(lists).of_operators((op,), line)
        if set(route.ways or (route.kind,)) != set(ways.split()):
            found = " ".join(route.ways or (route.kind,))
            text = f"the table has {found}, the source {ways}. {' '.join(why)}"
            wrong.append((op, line, text))
    return len(read["pairs"]), wrong


def document(lists: OpLists) -> Iterator[Block]:
    """Make the page."""
    yield Heading("What computes the kernels of each release", 1)
    yield Lines(
        (
            "Overloads with an MPS kernel, by what their code reaches in the wheel (op_lists/README.md, routes.json).",
            "Several ways: the kernel, or what it calls, has more than one; op_lists/routes.yaml has known conditions.",
        )
    )
    rows = []
    for release in lists.releases:
        native = (op for op, value in lists.operators(release.line).items() if value == "kernel")
        found = Counter(routes(lists).of_operators((op,), release.line).kind for op in native)
        total, unknown = found.total(), found["unknown"]
        shares = (
            percent(total - found["either"] - unknown, total),
            percent(total - unknown, total),
        )
        rows.append((release.torch, str(total), *(str(found[kind]) for kind in ROUTES), *shares))
    words = (ROUTE_WORDS[kind] for kind in ROUTES)
    yield Table(("torch", "overloads", *words, "one route", "not unknown"), tuple(rows))
    number, wrong = disagreements(lists)
    yield Heading("Agreement with the sources")
    yield Lines(
        (
            f"{number} pairs of an overload and a release were drawn at random and decided by reading the release's",
            f"sources without the table: {number - len(wrong)} agree. They are of torch 1.13.1, 2.6.0 and 2.9.1, whose",
            "whole sources could be read.",
        )
    )
    yield Bullets(tuple(f"{op}, torch {line}: {text}" for op, line, text in wrong))


if __name__ == "__main__":
    write_text(PAGE, as_markdown(tuple(document(load()))))
