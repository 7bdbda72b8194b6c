"""Extract from macOS wheels what a review of the limitations needs, and print the review list.

python -m scripts.extract_limits [RELEASE ...] [--check]

Reads each release of op_lists/releases.yaml, or those that are named, and writes the texts that
MPS sources print and the dtypes of the Metal kernels into op_lists/extracted/.  --check reads no
wheel unless releases are named: it fails where a statement claims a text in a release whose wheel
does not hold it.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from opcheck.common.errors import OpcheckError
from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data.files import Release, read_releases
from opcheck.data.history import History, by_version, dump, expand, with_column
from opcheck.data.lint import DIRECTORY, TEXTS, Extracted, fragments
from opcheck.data.registrations import data_directory
from opcheck.data.statements import load_statements
from scripts.wheels import extracted as tables
from scripts.wheels.checks import Text, texts
from scripts.wheels.library import open_library
from scripts.wheels.metal import metal_families
from scripts.wheels.routes import read_users


def extract(
    release: str, claimed: tuple[str, ...]
) -> tuple[str, tuple[Text, ...], Mapping[str, frozenset[str]], Mapping[str, str]]:
    """A release's line, its texts, the overloads that lead to their functions, its Metal families with their dtypes.

    Raises:
        UsageError: neither a release nor a wheel.
        OpListError: no such wheel, or one that cannot be read.
    """
    with open_library(release) as opened:
        torch, image, _ = opened
    places = texts(image, claimed)
    users = read_users(image, {place.function for place in places if place.function})
    return str(Version.parse(torch)), places, users, metal_families(image)


def review(line: str, before: str | None, extracted: Extracted, history: History) -> Iterator[str]:
    """What a person has to look at after a release was added."""
    now = tables.present(extracted, line)
    then = tables.present(extracted, before) if before else ()
    yield f"== torch {line}, against {before or 'nothing'}"
    new, gone = sorted({*now} - {*then}), sorted({*then} - {*now})
    yield f"-- {len(new)} new texts"
    yield from (f"  + {_said(text, extracted)}" for text in new)
    yield f"-- {len(gone)} texts went away"
    statements = load_statements(data_directory()).all
    speaking = [(item, text) for item, text in tables.claims(statements) if item.spans(line)]
    for text in gone:
        yield f"  - {_said(text, extracted)}"
        for statement, claimed in speaking:
            if any(piece in text for piece in fragments(claimed)) and not tables.stands(claimed, now):
                yield f"      still claimed by {statement.id}"
    for name, dtypes in _metal(line, before, extracted.releases, history):
        yield f"  {name}: {dtypes}"


def _said(text: str, extracted: Extracted) -> str:
    file, function, number, _ = extracted.texts[text][0]
    where = file.rpartition("/")[2] if file else "place not known"
    return f"{text!r} ({where}:{number or '?'} {function or ''})"


def _metal(line: str, before: str | None, releases: tuple[str, ...], history: History) -> Iterator[tuple[str, str]]:
    for name, entries in history.operators.items():
        values = expand(entries, releases)
        then = _dtypes(values.get(before or "", ""))
        now = _dtypes(values.get(line, ""))
        if now != then:
            results = [f"+{name}" for name in sorted(now - then)]
            results += [f"-{name}" for name in sorted(then - now)]
            yield f"Metal {name}", " ".join(results)


def _dtypes(value: str) -> set[str]:
    """Which dtypes, with the number of their place where there is more than one."""
    places = value.split(" | ") if value else []
    return {
        f"{dtype}@{number}" if len(places) > 1 else dtype
        for number, place in enumerate(places, 1)
        for dtype in place.split()
    }


def check(extracted: Extracted, releases: Iterable[Release]) -> list[str]:
    """What --check reports: a statement that claims what no wheel holds, a release not extracted."""
    statements = load_statements(data_directory()).all
    results = [f"torch {release.line}: not extracted" for release in releases if release.line not in extracted.releases]
    for item, lines in tables.unfounded(statements, extracted):
        spanned = [line for line in extracted.releases if item.spans(line)]
        where = "any release of its span" if len(lines) == len(spanned) else ", ".join(lines)
        results.append(f"{item.id}: its text does not stand in the wheel of {where}")
    known = {statement.id for statement in statements}
    results += [f"{name}: an exception for no statement" for name in tables.EXCEPTIONS.keys() - known]
    return results


def main() -> int:
    """Extract, print the review, check; 1 where the check finds something, 2 or 3 on an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help="2.13.0; left out: all (with --check: none)")
    parser.add_argument("--check", action="store_true", help="hold the statements against them")
    given = parser.parse_args()
    directory = data_directory()
    try:
        return _run(given.releases, directory, check_only=given.check)
    except OpcheckError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _run(named: list[str], directory: Path, *, check_only: bool) -> int:
    extracted, history = TEXTS.load(directory), tables.read_metal(directory)
    known, _ = read_releases(directory / "releases.yaml")
    asked = list(named)
    if not named and not check_only:
        asked = [item.torch for item in known]
        extracted, history = tables.EMPTY, tables.metal({})
    pieces = {piece for _, text in tables.claims(load_statements(data_directory()).all) for piece in fragments(text)}
    lines = []
    for release in asked:
        start = time.monotonic()
        line, places, users, families = extract(release, tuple(sorted(pieces)))
        history = tables.metal(with_column(history.operators, extracted.releases, line, families))
        extracted = tables.with_release(extracted, line, places, users)
        lines.append(line)
        seconds = time.monotonic() - start
        print(f"{line}: {len(tables.present(extracted, line))} texts, {len(families)} families, {seconds:.1f} s")
    if asked:
        (directory / DIRECTORY).mkdir(exist_ok=True)
        write_text(directory / TEXTS.name, tables.dump_texts(extracted))
        write_text(directory / DIRECTORY / tables.METAL, dump(history))
    for line in by_version(lines):
        earlier = extracted.releases[: extracted.releases.index(line)]
        before = earlier[-1] if earlier else None
        print("\n".join(review(line, before, extracted, history)))
    outcome = check(extracted, known)
    for problem in outcome:
        print(problem)
    print(f"{len(extracted.releases)} releases, {len(outcome)} differences")
    return 1 if check_only and outcome else 0


if __name__ == "__main__":
    sys.exit(main())
