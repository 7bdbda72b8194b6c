"""The texts and dtypes extracted from the wheels, and the check of the limitations against them.

``op_lists/extracted/texts.json`` has each text that an MPS source prints and the releases that hold
it; ``metal.json`` has the dtypes of the Metal kernels.  ``scripts/extract_limits.py`` makes both for
the authors and reviewers of limitations; no verdict depends on them.  ``opcheck/data/lint.py`` reads the texts.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from opcheck.common.versions import Version
from opcheck.data.history import SCHEMA, History, by_version, with_column
from opcheck.data.lint import DIRECTORY, MADE_BY, SHARED, Extracted, HalfOpen, Place, fragments, list_spanned
from opcheck.data.statement_model import Statement
from opcheck.data.tables import ListFile
from scripts.wheels.checks import Text

METAL = "metal.json"
#: The kinds of evidence for a text that was read in PyTorch's source or in its wheel.
_READ = frozenset({"binary", "source"})
#: A part of a message is at least as long as "MPS:".
_PART = 4
#: So many characters of a message identify it, however long its inserted values are.
_SURE = 20
#: The largest length of a value that C++ inserts into a message.
_INSERTED = 24
EMPTY = Extracted(SCHEMA, (), {}, {})
#: A function that more overloads lead to is shared.
_FEW = 60

_SHARED_CHECK = "a check of linalg.svd that all backends share prints it, and no MPS source"
#: Statements whose text is not among the extracted texts, and the reason why they are right.
EXCEPTIONS: dict[str, str] = {
    **dict.fromkeys(
        map("dtype-absent-{}".format, ("float8", "fnuz", "unsigned", "sub-byte", "e8m0fnu", "float4")),
        "Python raises it, and only texts of MPS are extracted",
    ),
    "add-alpha-complex": "libc10.dylib has it, for all backends, and only libtorch_cpu.dylib is read",
    "conj-physical-in-place": "DispatchStub.cpp joins the text of any device, and only texts of MPS are extracted",
    "dtype-quantized": "the dispatcher joins the text of any key, and only texts of MPS are extracted",
    "index-reduce-dtypes": "the wheel of 2.15 has the name alone, without the words of a message",
    "layer-norm-partly-frozen-aborts": "Foundation raises it, and no text of torch",
    "linalg-polar-half": _SHARED_CHECK,
    "linalg-polar-integers": _SHARED_CHECK,
    "linear-backward-one-dimensional-weight": "a check of mm that all backends share prints it, and no MPS source",
    "linear-backward-one-dimensional-weight-aborts": "MPSGraph prints it, and no text of torch",
}


def present(extracted: Extracted, line: str) -> tuple[str, ...]:
    """Return the texts of a release."""
    return tuple(
        text
        for text, places in extracted.texts.items()
        if any(line in list_spanned(place[3], extracted.releases) for place in places)
    )


def spans(lines: Iterable[str], releases: Sequence[str]) -> tuple[HalfOpen, ...]:
    """Return the spans of a set of release lines: the inverse of ``list_spanned``."""
    there = set(lines)
    results: list[HalfOpen] = []
    since: str | None = None
    for line in releases:
        if line in there:
            since = since or line
        elif since is not None:
            results.append((since, line))
            since = None
    return (*results, (since, None)) if since is not None else tuple(results)


def with_release(old: Extracted, line: str, places: Iterable[Text], users: Mapping[str, Iterable[str]]) -> Extracted:
    """Return the texts with those of a release added; they replace the release's earlier texts.

    The recorded place of a text in a function is that in the newest release that holds it, whatever the
    order in which releases are added.  Of the functions that no kernel leads to, only the first counts, and
    only where no kernel leads to any.

    Args:
        old: the texts so far.
        line: the release line.
        places: its texts, by text and the most precise place first.
        users: the overloads whose kernels lead to a function of the release.
    """
    releases = tuple(by_version({*old.releases, line}))
    known = {
        (text, place[1]): (place[0], place[2], {*list_spanned(place[3], old.releases)} - {line})
        for text, rows in old.texts.items()
        for place in rows
    }
    for text, group in groupby(places, key=lambda place: place.text):
        first, *others = group
        reached = [place for place in (first, *others) if place.function in users] or [first]
        for place in reached:
            key = text, place.function
            file, number, lines = known.get(key, (None, None, set()))
            if all(Version.parse(line) > Version.parse(other) for other in lines):
                file, number = place.file, place.line
            known[key] = file, number, {*lines, line}
    texts: dict[str, list[Place]] = defaultdict(list)
    for (text, function), (file, number, lines) in sorted(known.items(), key=str):
        if lines:
            texts[text].append((file, function, number, spans(lines, releases)))
    printing = {place[1] for rows in texts.values() for place in rows}
    column = {
        function: " ".join(sorted(names)) if len({*names}) <= _FEW else SHARED
        for function, names in users.items()
        if function in printing
    }
    operators = with_column(old.operators, old.releases, line, column)
    return Extracted(SCHEMA, releases, {key: tuple(texts[key]) for key in sorted(texts)}, operators)


def dump_texts(extracted: Extracted) -> str:
    """Return the text of texts.json: one message or function per line, sorted."""
    texts, operators = (
        ",\n".join(
            f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(row, ensure_ascii=False, separators=(',', ':'))}"
            for key, row in sorted(rows.items())
        )
        for rows in (extracted.texts, extracted.operators)
    )
    head = f'{{"schema": {extracted.schema}, "releases": {json.dumps(extracted.releases)},'
    return f'{head}\n"texts": {{\n{texts}\n}},\n"operators": {{\n{operators}\n}}}}\n'


def read_metal(op_lists: Path) -> History:
    """Read the dtypes of the Metal kernels by family; empty where the file does not exist.

    Raises:
        OpListError: the file is damaged.
    """
    file = ListFile(f"{DIRECTORY}/{METAL}", History, made_by=MADE_BY, missing=metal({}))
    return file.load(op_lists)


def metal(families: dict[str, tuple[tuple[str, str | None], ...]]) -> History:
    """Return the content of metal.json for these families."""
    return History(schema=SCHEMA, namespace="metal", key="dtypes", operators=families)


def stands(text: str, present: Sequence[str]) -> bool:
    """Return whether a release's texts contain each piece of a statement's text.

    A piece may lie within a single text or be a join of whole texts, because C++ joins the parts of a
    message when it prints it.  A value that the statement spells out (a dtype) may lie between them.
    """
    return all(any(piece in whole for whole in present) or _joined(piece, present) for piece in fragments(text))


def _joined(piece: str, present: Sequence[str]) -> bool:
    covered = bytearray(len(piece))
    for part in present:
        at = piece.find(part) if len(part.strip()) >= _PART else -1
        while at >= 0:
            covered[at : at + len(part)] = b"\1" * len(part)
            at = piece.find(part, at + 1)
    left = "".join("\0" if mark else char for char, mark in zip(piece, covered, strict=True))
    # A value is a word; more of them would be a part of the message that the release lacks.
    return sum(covered) >= min(len(piece) / 2, _SURE) and all(
        len(gap) <= _INSERTED and not re.search(r"\s", gap) for gap in left.split("\0")
    )


def claims(statements: Iterable[Statement]) -> Iterator[tuple[Statement, str]]:
    """Yield the statements whose evidence claims that their text was read, with it; exceptions are left out."""
    for statement in statements:
        read = any(evidence.kind in _READ for evidence in statement.evidence)
        if statement.error is not None and read and statement.id not in EXCEPTIONS:
            yield statement, statement.error.text


def unfounded(statements: Iterable[Statement], extracted: Extracted) -> Iterator[tuple[Statement, tuple[str, ...]]]:
    """Return the statements that claim a text in releases that do not hold it, with these releases."""
    texts = {line: present(extracted, line) for line in extracted.releases}
    for statement, text in claims(statements):
        lines = [line for line in extracted.releases if statement.spans(line)]
        lacking = tuple(line for line in lines if not stands(text, texts[line]))
        if lacking:
            yield statement, lacking
