"""Draw findings of ``opcheck scan`` at random, to be judged one by one: are they right?

    python scripts/sample_scan.py --seed 1 --size 100 PATH...

Prints each finding of the sample with its lines and those around them.  All findings of all paths
are put in one list, in the order of the reports, and the sample is drawn from it without
replacement.
"""

import argparse
import random
from pathlib import Path

from opcheck.model.records import Finding, SourceLocation
from opcheck.source.engine import scan
from scripts.copies import TARGET


def main() -> None:
    """Scan, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--context", type=int, default=4, help="lines above and below")
    args = parser.parse_args()
    findings: list[Finding] = []
    for path in args.paths:
        report = scan([path], TARGET)
        print(f"# {path}: {report.totals} in {report.read}, {len(report.problems)} problems")
        findings += report.findings
    size = min(args.size, len(findings))
    drawn = random.Random(args.seed).sample(range(len(findings)), size)  # noqa: S311  (a seeded sample)
    print(f"# {size} of {len(findings)} findings, seed {args.seed}")
    for number, index in enumerate(sorted(drawn), 1):
        finding = findings[index]
        print(f"\n[{number}] {finding.rule} {finding.severity}: {finding.message}")
        for place in finding.locations[:2]:
            if place.location is not None:
                _show(place.location, args.context)


def _show(location: SourceLocation, context: int) -> None:
    print(f"    {location} {location.function}")
    if "#cell" in location.file:
        print(f"      > {location.text}")
        return
    lines = Path(location.file).read_text(encoding="utf-8", errors="replace").splitlines()
    for number in range(max(1, location.line - context), location.line + context + 1):
        if number <= len(lines):
            print(f"    {'>' if number == location.line else ' '} {lines[number - 1][:140]}")


if __name__ == "__main__":
    main()
