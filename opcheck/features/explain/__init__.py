"""``opcheck explain``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Look up",
    position=4,
    help="Explain a finding, or list all of them.",
    examples={
        "opcheck explain OC102": "what the finding means, and what to do",
        "opcheck explain": "all findings, one line each",
        "opcheck explain schema": "the JSON schema of a report",
    },
)
