"""``opcheck repro``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit a model or its source",
    position=6,
    help="Write the smallest program for a finding, tried on an emulated Mac.",
    examples={
        "opcheck repro report.json OC101": "from a saved report",
        "opcheck repro model.py:Net OC101": "from a model",
        "opcheck repro report.json aten::_ctc_loss -o bug.py": "the program of one operator",
    },
)
