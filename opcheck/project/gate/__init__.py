"""What a report comes to for a CI job, and the run of all models on all targets (``opcheck gate``)."""

from opcheck.project.gate.policy import (
    COULD_NOT_TELL,
    FAIL_ON,
    FINDINGS,
    PASSED,
    Judgement,
    Policy,
    exit_code,
    judged,
)

__all__ = [
    "COULD_NOT_TELL",
    "FAIL_ON",
    "FINDINGS",
    "PASSED",
    "Judgement",
    "Policy",
    "exit_code",
    "judged",
]
