"""Hold ``opcheck scan`` against public ports from CUDA to MPS: needed lines that it names, errors that are right.

    python -m scripts.score_ports --copies DIR [--half development|apart|third|fourth|fifth] [--missed] [--wrong]

``scripts/ports.yaml`` has the ports: repository, commit, file, lines.  DIR holds a copy of each repository with its
history, ``OWNER+NAME/repo``; a port whose copy is missing is left out, and named.  The files of the parent commit are
written to a temporary folder and scanned there; nothing of them is kept.

An error counts as right where the port changed its line, or the file says under ``omitted`` that the port should have.
"""

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from opcheck.source.engine import scan
from scripts.copies import TARGET, copy_of, git, write_commit

PORTS = Path(__file__).with_name("ports.yaml")
#: A finding so many lines beside a hunk names it; beside an insertion, which has no line of its own.
_BESIDE, _BESIDE_INSERTION = 1, 3
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ")
_SOURCES = (".py", ".ipynb", ".toml", ".txt", ".in")


class Place(NamedTuple):
    """A finding at one of its lines."""

    file: str
    line: int
    rule: str
    severity: str
    text: str
    #: whether it is where the finding stands, and not where its value is used
    first: bool


def main() -> None:
    """Print the figures of each port and of each half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=Path, required=True, metavar="DIR")
    parser.add_argument("--half", choices=("development", "apart", "third", "fourth", "fifth"))
    parser.add_argument("--missed", action="store_true", help="list the lines that no finding names")
    parser.add_argument("--wrong", action="store_true", help="list the errors on lines that the port left alone")
    args = parser.parse_args()
    totals: dict[str, Counter[str]] = {}
    for port in yaml.safe_load(PORTS.read_text(encoding="utf-8"))["ports"]:
        if args.half not in {None, port["half"]}:
            continue
        copy = copy_of(args.copies, port["repository"])
        if not copy.is_dir():
            print(f"{port['repository']}: no copy")
            continue
        figures = _score(port, copy, missed=args.missed, wrong=args.wrong)
        print(f"{port['repository']} {port['commit'][:8]}: {dict(figures)}")
        totals.setdefault(port["half"], Counter()).update(figures)
        totals[port["half"]]["ports"] += 1
    for half, figures in totals.items():
        _summarize(half, figures)


def _summarize(half: str, figures: Counter[str]) -> None:
    needed, audit = figures["needed"], figures["audit"]
    named, audited = figures["named"], figures["audit named"]
    errors, right = figures["errors"], figures["errors right"]
    print(
        f"{half}: {figures['ports']} ports; of {needed} needed hunks {named} named ({named / max(1, needed):.2f}); "
        f"with the {audit} that only an audit sees {(named + audited) / max(1, needed + audit):.2f}; "
        f"of {errors} errors in touched files {right} right ({right / max(1, errors):.2f})"
    )


def _score(port: dict[str, Any], copy: Path, *, missed: bool, wrong: bool) -> Counter[str]:
    figures: Counter[str] = Counter()
    changed = _changed(copy, port["commit"])
    with tempfile.TemporaryDirectory() as folder:
        write_commit(copy, f"{port['commit']}^", Path(folder), _SOURCES)
        places = list(_places(Path(folder)))
    for key, named in (("needed", "named"), ("audit", "audit named")):
        for file, hunks in port.get(key, {}).items():
            for hunk in hunks:
                hit = any(place.file == file and _within(place.line, hunk) for place in places)
                figures[key] += 1
                figures[named] += hit
                if missed and not hit and key == "needed":
                    print(f"  missed {file} {hunk}")
    omitted = {(file, line) for file, lines in port.get("omitted", {}).items() for line in lines}
    for place in places:
        if place.severity == "error" and place.first and place.file in changed:
            around = range(place.line - _BESIDE, place.line + _BESIDE + 1)
            right = not changed[place.file].isdisjoint(around) or (place.file, place.line) in omitted
            figures["errors"] += 1
            figures["errors right"] += right
            if wrong and not right:
                print(f"  left alone {place.file}:{place.line} {place.rule} {place.text}")
    return figures


def _within(line: int, hunk: str) -> bool:
    if hunk.endswith("+"):
        return abs(line - int(hunk[:-1])) <= _BESIDE_INSERTION
    first, _, last = hunk.partition("-")
    return int(first) - _BESIDE <= line <= int(last or first) + _BESIDE


def _changed(copy: Path, commit: str) -> dict[str, set[int]]:
    """The lines of the parent that a commit replaced, or below which it added lines, by file."""
    text = git(copy, "show", "-U0", "--format=", commit, "--", "*.py", "*.txt", "*.toml").decode("utf-8", "replace")
    changed: dict[str, set[int]] = {}
    file = ""
    for line in text.split("\n"):
        if line.startswith("--- "):
            file = line[6:] if line.startswith("--- a/") else ""
        elif (hunk := _HUNK.match(line)) and file:
            first, count = int(hunk[1]), int(hunk[2] or 1)
            changed.setdefault(file, set()).update(range(first, first + max(1, count)))
    return changed


def _places(folder: Path) -> Iterator[Place]:
    for finding in scan([str(folder)], TARGET).findings:
        for number, place in enumerate(finding.locations):
            if place.location is not None:
                file = Path(place.location.file).relative_to(folder).as_posix()
                yield Place(file, place.location.line, finding.rule, finding.severity, place.text, number == 0)


if __name__ == "__main__":
    main()
