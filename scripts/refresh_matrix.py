"""Write the coverage documentation: reports/matrix/README.md and reports/coverage.svg.

Usage: python scripts/refresh_matrix.py [--check]

The other formats are not kept: ``opcheck matrix -f html -o coverage.html`` makes them.
The same op lists give the same bytes.  --check writes nothing and exits with 1 where a file would
change.
"""

from __future__ import annotations

import sys
from pathlib import Path

from opcheck.common.files import write_text
from opcheck.data.registrations import load
from opcheck.features.matrix.page import write
from opcheck.lookup.coverage import coverage
from opcheck.lookup.matrix import matrix
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.render.coverage_plot import plot

REPORTS = Path(__file__).parents[1] / "reports"


def texts() -> dict[Path, str]:
    """Every file with its text.

    Raises:
        OpListError: the op lists are damaged.
    """
    lookup = OperatorLookup(load())
    newest = matrix(lookup=lookup)
    everything = coverage(newest.macos, lookup)
    return {
        Path("matrix") / "README.md": write(newest, "markdown"),
        Path("coverage.svg"): plot(everything.counts, everything.macos),
    }


def main(arguments: list[str]) -> int:
    """Write the files, or check them."""
    made = texts()
    for name, text in made.items():
        print(f"{name}: {len(text.encode()):,} bytes")
    if "--check" in arguments:
        stale = [name for name, text in made.items() if _read(REPORTS / name) != text]
        print(f"stale: {', '.join(map(str, stale)) or 'nothing'}")
        return 1 if stale else 0
    for name, text in made.items():
        (REPORTS / name).parent.mkdir(parents=True, exist_ok=True)
        write_text(REPORTS / name, text)
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
