"""``opcheck scan``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=3,
    help="Find the lines of a source that were written for CUDA, without running it.",
    examples={
        "opcheck scan src": "files below a folder; .gitignore counts",
        "opcheck scan train.py --select OC201": "one rule",
        "opcheck scan . -f github": "annotations of a pull request",
    },
    documents={"scan": "opcheck.source.records:ScanReport"},
    pages={"ScanReport": "opcheck.features.scan.page"},
)
