"""What the junit-10 schema of Jenkins' xunit plugin allows, as far as opcheck writes such elements.

The facts are those of ``junit-10.xsd`` of jenkinsci/xunit-plugin: for each element the attributes that it must and may have,
and its children.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree as ET


class Element(NamedTuple):
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()
    text: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RESULT = Element(optional=_words("type message"), text=True)

ELEMENTS = {
    "testsuites": Element(_words(""), _words("name time tests failures errors"), _words("testsuite")),
    "testsuite": Element(
        _words("name tests failures errors"),
        _words("group time skipped timestamp hostname id package file log url"),
        _words("testsuite properties testcase system-out system-err"),
    ),
    "properties": Element(children=_words("property")),
    "property": Element(_words("name value")),
    "testcase": Element(
        _words("name"), _words("time classname group"), _words("skipped error failure system-out system-err")
    ),
    "skipped": _RESULT,
    "error": _RESULT,
    "failure": _RESULT,
    "system-out": Element(text=True),
}


def problems(text: str) -> list[str]:
    """Everything that the schema does not allow."""
    return list(_problems(ET.fromstring(text), "testsuites"))  # noqa: S314  (our own)


def _problems(element: ET.Element, *allowed: str) -> Iterator[str]:
    if element.tag not in allowed:
        yield f"{element.tag} is not among {', '.join(allowed)}"
        return
    kind = ELEMENTS[element.tag]
    for name in kind.required - set(element.attrib):
        yield f"{element.tag} lacks {name}"
    for name in set(element.attrib) - kind.required - kind.optional:
        yield f"{element.tag} has {name}"
    inside = [element.text, *(child.tail for child in element)]
    if not kind.text and any(text and text.strip() for text in inside):
        yield f"{element.tag} has text"
    for child in element:
        yield from _problems(child, *kind.children)
