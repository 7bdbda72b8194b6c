"""``opcheck gate``."""

from opcheck.features import Feature

FEATURE = Feature(
    group="Audit many models",
    position=2,
    help="Audit all models of a project on all of its targets, and judge them: for CI.",
    examples={
        "opcheck init": "write the table that the gate reads",
        "opcheck gate": "every configured model on every target",
        "opcheck gate --baseline opcheck-baseline.yaml -f github": "in CI: only what is new fails",
    },
    documents={"gate": "opcheck.features.gate.records:SavedGate"},
    pages={"GateReport": "opcheck.features.gate.page"},
)
