"""``opcheck observe``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=2,
    help="Read the logs of a Mac or of a CI job: what ran on the CPU, what raised, and where.",
    examples={
        "opcheck observe mac.log": "what a Mac printed",
        "opcheck observe ci.log --fail-on unsupported": "fail where something raised",
        "opcheck observe - -f json": "from stdin",
    },
)
