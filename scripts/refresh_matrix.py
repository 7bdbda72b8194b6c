"""Write the coverage documentation: reports/matrix/README.md and reports/coverage.svg.

The other formats are not kept: ``opcheck matrix -f html -o coverage.html`` makes them.
The same op lists give the same bytes.
"""

from pathlib import Path

from opcheck.common.files import write_text
from opcheck.data.registrations import load
from opcheck.features.matrix.page import write
from opcheck.lookup.matrix import coverage, matrix
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.render.html import plot

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


if __name__ == "__main__":
    for name, text in texts().items():
        write_text(REPORTS / name, text)
