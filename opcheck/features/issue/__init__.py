"""``opcheck issue``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=7,
    help="Write a finding as an issue for PyTorch's tracker.",
    examples={
        "opcheck issue report.json OC101": "the text, ready to paste",
        "opcheck issue model.py:Net OC101": "from a model",
        "opcheck issue report.json OC101 -o issue.md": "into a file",
    },
    page="repro",
)
