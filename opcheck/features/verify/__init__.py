"""``opcheck verify``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=3,
    help="Compare a prediction with an observation on a Mac.",
    examples={
        "opcheck verify report.json run.json": "a prediction and a run on a Mac",
        "opcheck verify report.json mac.log": "a prediction and a log",
        "opcheck verify report.json run.json --propose statements.yaml": "what the lists lack",
    },
    documents={"verify": "opcheck.device.verify:Verification"},
)
