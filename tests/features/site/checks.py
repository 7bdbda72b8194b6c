"""What must hold of every page of a site: its links lead somewhere, it is valid, its structure is there."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib

_LINKS = {"href", "src", "action"}


def parsed(path: Path) -> Element:
    """The page; a page that is no valid HTML raises."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    result: Element = parser.parse(path.read_text(encoding="utf-8"))
    return result


def everything(site: Path) -> dict[str, Element]:
    """Every page by its path."""
    return {path.relative_to(site).as_posix(): parsed(path) for path in sorted(site.rglob("*.html"))}


def broken(site: Path, pages: dict[str, Element]) -> Iterator[str]:
    """The links that lead nowhere: to no file, or to no such place on a page."""
    ids = {name: {node.get("id") for node in page.iter()} for name, page in pages.items()}
    for name, page in pages.items():
        for address in _addresses(page):
            target, _, place = address.partition("#")
            file = posixpath.normpath(posixpath.join(posixpath.dirname(name), target or Path(name).name))
            if not (site / file).is_file() or (place and place not in ids.get(file, ())):
                yield f"{name}: {address}"


def _addresses(page: Element) -> Iterator[str]:
    for node in page.iter():
        for attribute in _LINKS & set(node.keys()):
            address = node.get(attribute) or ""
            if not address.startswith(("https://", "data:")):
                yield address


def wrong_structure(name: str, page: Element) -> Iterator[str]:
    """Landmarks, headings, captions and headers that are missing; ids that are there twice."""
    counted = Counter(node.tag for node in page.iter())
    for tag in ("main", "header", "footer", "nav", "h1", "title"):
        if counted[tag] != 1:
            yield f"{name}: {counted[tag]} of {tag}"
    if page.get("lang") != "en":
        yield f"{name}: no language"
    for table in page.iter("table"):
        if table.find("caption") is None or any(not th.get("scope") for th in table.iter("th")):
            yield f"{name}: a table without a caption, or a header without a scope"
    twice = [item for item, number in Counter(n.get("id") for n in page.iter()).items() if item and number > 1]
    yield from (f"{name}: the id {item} twice" for item in twice)
