"""Write reports/routes.md: what computes the kernels of each release, and how the table agrees with other sources.

tests/data/route_readings.json has pairs of an overload and a release that were drawn at random and decided without the
table, by the release's sources, or later by what the entry names; tests/data/route_notes.json has those that the notes
of a release say moved to Metal.  The names of the Metal kernels are read from the wheels.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from opcheck.common.files import write_text
from opcheck.common.text import percent
from opcheck.common.versions import Target
from opcheck.common.vocabulary import ROUTE_WORDS, ROUTES
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists, load
from opcheck.kernels import library
from opcheck.render.document import Block, Bullets, Heading, Lines, Table
from opcheck.render.markdown import as_markdown
from scripts.pages import ROOT, page_text
from scripts.wheels.routes import stems

PAGE = ROOT / "reports" / "routes.md"
READINGS = ROOT / "tests" / "data" / "route_readings.json"
NOTES = ROOT / "tests" / "data" / "route_notes.json"


def disagreements(lists: OpLists, key: str) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many pairs were read, and those that the table contradicts, with what both have and the reason."""
    pairs = json.loads(READINGS.read_text(encoding="utf-8"))[key]
    wrong = []
    for op, line, source, _, *why in pairs:
        here = ways(lists, op, line)
        if {*here} != {*source.split()}:
            text = f"the table has {' '.join(here)}, the source {source}. {' '.join(why)}"
            wrong.append((op, line, text))
    return len(pairs), wrong


def ways(lists: OpLists, op: str, line: str) -> tuple[str, ...]:
    """Return every way of a kernel in a release."""
    route = routes(lists).of_operators((op,), line)
    return route.ways or (route.kind,)


def is_decided(lists: OpLists, op: str, target: Target) -> bool:
    """Return whether it is known how a kernel with several ways chooses among them."""
    line = str(target.torch)
    computing = {*ways(lists, op, line)} - {"cpu"}
    falls_back = any(s.effect == "falls_back" for s in lists.statements.for_op(op, line))
    return bool(routes(lists).choice_of(op, target)) or (falls_back and len(computing) == 1)


def notes(lists: OpLists) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many overloads the notes of a release name, and those that have no Metal kernel there."""
    moved = json.loads(NOTES.read_text(encoding="utf-8"))["moved"]
    wrong = [
        (op, line, f"the table has {' '.join(ways(lists, op, line))}. {' '.join(why)}")
        for op, line, _, *why in moved
        if "metal" not in ways(lists, op, line)
    ]
    return len(moved), wrong


def named_like_kernels(lists: OpLists) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many operators have the name of a Metal kernel, release by release, and those without a Metal way.

    Raises:
        OpListError: a wheel cannot be had, or is damaged.
    """
    reasons = json.loads(NOTES.read_text(encoding="utf-8"))["kernels"]
    total, wrong = 0, []
    for release in lists.releases:
        kernels = stems(library.read(release.torch).functions)
        overloads: dict[str, set[str]] = defaultdict(set)
        for op, value in lists.operators(release.line).items():
            if value == "kernel":
                overloads[op.partition("::")[2].partition(".")[0].strip("_")].add(op)
        for name in sorted(overloads.keys() & kernels.keys()):
            total += 1
            kinds = {way for op in overloads[name] for way in ways(lists, op, release.line)}
            if "metal" not in kinds:
                text = f"the table has {' '.join(sorted(kinds))}. {reasons.get(name, '')}"
                wrong.append((name, release.line, text))
    return total, wrong


def document(lists: OpLists) -> Iterator[Block]:
    """Make the page."""
    yield Heading("What computes the kernels of each release", 1)
    yield Lines(tuple(page_text("routes").splitlines()))
    rows = []
    for release in lists.releases:
        native = [op for op, value in lists.operators(release.line).items() if value == "kernel"]
        kinds = {op: routes(lists).of_operators((op,), release.line).kind for op in native}
        counts = Counter(kinds.values())
        total, unknown = counts.total(), counts["unknown"]
        target = Target(torch=release.version, macos=release.minimum)
        several = [op for op in native if kinds[op] == "either"]
        chosen = [op for op in several if is_decided(lists, op, target)]
        single = total - counts["either"] - unknown
        shares = (percent(single, total), percent(single + len(chosen), total), percent(total - unknown, total))
        rows.append((release.torch, str(total), *(str(counts[kind]) for kind in ROUTES), str(len(chosen)), *shares))
    words = (ROUTE_WORDS[kind] for kind in ROUTES)
    yield Table(("torch", "overloads", *words, "condition known", "one route", "decided", "not unknown"), tuple(rows))
    #: What the table is held against.
    sections = {
        "the sources": disagreements(lists, "pairs"),
        "sources and pull requests of all releases": disagreements(lists, "later"),
        "the releases' notes": notes(lists),
        "the releases' Metal kernels": named_like_kernels(lists),
    }
    for title, (number, wrong) in sections.items():
        yield Heading(f"Agreement with {title}")
        yield Lines(tuple(page_text(f"routes, {title}", number=number, agree=number - len(wrong)).splitlines()))
        yield Bullets(tuple(f"{op}, torch {line}: {why}" for op, line, why in wrong))


if __name__ == "__main__":
    write_text(PAGE, as_markdown(tuple(document(load()))))
