"""Valid documents with something wrong: their structure or their bytes are mutated."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from hypothesis import strategies as st

#: Texts that mean something to a terminal, a shell, a CI service, a parser or a file system.
NASTY = (
    "",
    " ",
    "-",
    "--",
    "--help",
    "\x1b[2J\x1b]0;title\x07",
    "\n::error file=x::injected\n",
    "\r\n",
    "</script><script>alert(1)</script>",
    "]]><![CDATA[",
    "| a | b |\n# title",
    "\u202e\u2066right to left\u2028",
    "\udc80 a name that is no UTF-8",
    "\x00\x08\x0c\x85\ufffe\uffff",
    "=1+1",
    "日本語 🦊",
    "9" * 5000,
    "1." * 3000,
    "a" * 20000,
    "../../../etc/passwd",
    "/dev/null",
    "%s{0}{x}%(y)s",
    "(" * 300,
    "aten::",
    "::",
    "nan",
    "1e999",
    "0x10",
    "١٢",
    "²",
    "*",
    "[",
    "{",
)
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=12))
NUMBERS = st.sampled_from((0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 10**5000, 0.5, -0.0, 1e308, 5e-324))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.one_of(
    SCALARS,
    st.sampled_from(([], {}, [[]], [{}], {"": {}}, [None], ["a", "a"])),
    st.integers(1, 200).map(lambda depth: nested(depth, list)),
    st.integers(1, 200).map(lambda depth: nested(depth, dict)),
)

Path_ = tuple[str | int, ...]


def nested(depth: int, kind: type) -> Any:
    """A collection in a collection, so many deep."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def paths(document: Any, before: Path_ = ()) -> Iterator[Path_]:
    """Where values stand in a document; the document itself is left out."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield (*before, key)
        yield from paths(value, (*before, key))


@st.composite
def mutated(draw: st.DrawFn, documents: Sequence[Any]) -> Any:
    """One of the documents, changed in one to three places."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        every = list(paths(document))
        if not every:
            return document
        *way, last = draw(st.sampled_from(every))
        parent = document
        for key in way:
            parent = parent[key]
        _change(draw, parent, last, document, every)
    return document


def _change(draw: st.DrawFn, parent: Any, key: Any, document: Any, every: list[Path_]) -> None:
    """Change the value of a key of its parent."""
    how = draw(st.sampled_from(("replace", "remove", "rename", "repeat", "wrap", "move", "add")))
    if how == "remove":
        del parent[key]
    elif how == "wrap":
        parent[key] = draw(st.sampled_from(([parent[key]], {"a": parent[key]})))
    elif how == "move":
        other = document
        for step in draw(st.sampled_from(every)):
            other = other[step]
        parent[key] = copy.deepcopy(other)
    elif how == "rename" and isinstance(parent, dict):
        parent[draw(TEXTS)] = parent.pop(key)
    elif how == "add" and isinstance(parent, dict):
        parent[draw(TEXTS)] = copy.deepcopy(draw(VALUES))
    elif how in {"repeat", "add"} and isinstance(parent, list):
        parent.extend(copy.deepcopy(parent[key]) for _ in range(draw(st.integers(1, 20))))
    else:
        parent[key] = copy.deepcopy(draw(VALUES))


def as_json(document: Any) -> bytes:
    """The document as JSON, also with numbers that Python refuses to print."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(document, ensure_ascii=False)
    finally:
        sys.set_int_max_str_digits(before)
    return text.encode("utf-8", errors="surrogatepass")


def as_yaml(document: Any) -> bytes:
    """The document as YAML; JSON, where YAML cannot write it."""
    try:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text: str = yaml.dump(document, Dumper=dumper, allow_unicode=True, sort_keys=False)
    except (yaml.YAMLError, ValueError, UnicodeError):
        return as_json(document)
    return text.encode("utf-8", errors="surrogatepass")


#: What YAML knows and JSON does not, in the place of a value.
_YAML_VALUES = (
    "!!python/object/apply:os.system [id]",
    "!!binary aGk=",
    "!!set {a, b}",
    "!unknown x",
    "&a [*a]",
    "*missing",
    "{<<: {a: 1}}",
    "{? [1, 2] : 3}",
    "{{}: 1}",
    "2024-01-01",
    "2024-13-45",
    "0o17",
    "1:30",
    "1_000",
    ".inf",
    ".nan",
    "|\n  text",
    "'",
    "\t",
    "---",
    "...",
    "%YAML 9.9",
    "&a [&b [*a, *b], *b]",
    "!!timestamp 2001-02-30",
    "!!int 9_9_x",
    "!!float x",
    "!!bool maybe",
    "!!null x",
    "0x" + "f" * 5000,
    "9" * 5000,
    "1:" * 2000 + "1",
)
_BYTES = (b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\x1b", b"\xc3", b"\n\n", b"\xe2\x80\xa8", b"{", b'"')


@st.composite
def yaml_mutated(draw: st.DrawFn, texts: Sequence[bytes]) -> bytes:
    """One of the texts, with something of YAML's own in the place of a value."""
    lines = draw(st.sampled_from(texts)).split(b"\n")
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.integers(0, len(lines) - 1))
        start, colon, _ = lines[number].partition(b": ")
        value = draw(st.sampled_from(_YAML_VALUES)).encode()
        lines[number] = start + colon + value
    return b"\n".join(lines)


@st.composite
def bytes_mutated(draw: st.DrawFn, texts: Sequence[bytes]) -> bytes:
    """One of the texts, with bytes that are lost, repeated, replaced or inserted."""
    content = bytearray(draw(st.sampled_from(texts)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(start + draw(st.integers(0, 40)), len(content))
        how = draw(st.sampled_from(("remove", "repeat", "replace", "insert", "cut")))
        if how == "cut":
            del content[start:]
        elif how == "repeat":
            content[end:end] = content[start:end] * draw(st.integers(1, 5))
        else:
            piece = draw(st.one_of(st.sampled_from(_BYTES), st.binary(max_size=4)))
            content[start : start if how == "insert" else end] = b"" if how == "remove" else piece
    return bytes(content)


def damaged(documents: Sequence[Any], *, with_yaml: bool = True) -> st.SearchStrategy[bytes]:
    """The documents as JSON or YAML, damaged in one of these ways."""
    written = [as_json(document) for document in documents]
    ways = [mutated(documents).map(as_json), bytes_mutated(written)]
    if with_yaml:
        texts = [as_yaml(document) for document in documents]
        ways += [mutated(documents).map(as_yaml), yaml_mutated(texts), bytes_mutated(texts)]
    return st.one_of(ways)
