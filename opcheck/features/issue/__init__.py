"""``opcheck issue``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=7,
    help="Write what PyTorch's tracker asks for about a finding.",
    examples={
        "opcheck issue report.json OC101": "the text, ready to paste",
        "opcheck issue model.py:Net OC101": "from a model",
        "opcheck issue report.json OC101 -o issue.md": "into a file",
    },
    page="repro",
)
