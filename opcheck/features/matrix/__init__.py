"""``opcheck matrix``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Look up",
    position=3,
    help="Write the coverage of a torch release, one row per operator overload.",
    examples={
        "opcheck matrix -o coverage.md": "the newest release as Markdown",
        "opcheck matrix -f html -o coverage.html": "all releases on one page with a search",
        "opcheck matrix --torch 2.9 --macos 14 -o coverage.csv": "for a spreadsheet",
    },
    documents={"matrix": "opcheck.lookup.matrix:Matrix"},
)
