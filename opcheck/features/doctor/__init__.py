"""``opcheck doctor``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Run and observe",
    position=4,
    help="Check a machine: torch, macOS, Python, variables, packages.",
    examples={
        "opcheck doctor": "this machine",
        "opcheck doctor --gather > facts.json": "the facts of a Mac, for elsewhere",
        "opcheck doctor --from facts.json": "look at them",
    },
    documents={"doctor": "opcheck.features.doctor.examine:Diagnosis"},
)
