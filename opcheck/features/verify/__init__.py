"""``opcheck verify``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=3,
    help="Hold a prediction against what a Mac did: agreements, contradictions, unseen.",
    examples={
        "opcheck verify report.json run.json": "a prediction beside what a Mac did",
        "opcheck verify report.json mac.log": "beside a log",
        "opcheck verify report.json run.json --propose statements.yaml": "what the lists lack",
    },
    documents={"verify": "opcheck.device.verify:Verification"},
)
