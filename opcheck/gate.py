"""From a report to the exit code of a CI job: 0 passed, 1 findings, 3 could not tell."""

from __future__ import annotations

from opcheck.memory.macs import asked
from opcheck.model import Memory, Report

PASSED, FINDINGS, COULD_NOT_TELL = 0, 1, 3

_RAISES = ("unsupported",)
_UNKNOWN = (*_RAISES, "unknown")
_FALLBACK = (*_UNKNOWN, "fallback_env", "fallback_always", "fallback_internal")

#: What each level of ``--fail-on`` counts, by the names of the report's totals; each level holds
#: the levels above it.
FAIL_ON: dict[str, tuple[str, ...]] = {
    "never": (),
    "unsupported": _RAISES,
    "unknown": _UNKNOWN,
    "fallback": _FALLBACK,
}


def exit_code(report: Report, *, fail_on: str, strict: bool) -> int:
    """What the report comes to; a run that was not seen whole never passes."""
    counted = FAIL_ON[fail_on]
    if counted and not report.target["cpu_fallback"]:
        # Without the variable these raise NotImplementedError.
        counted = (*counted, "fallback_env")
    if any(report.totals[name] for name in counted):
        return FINDINGS
    if counted and report.memory and _too_much(report.memory):
        return FINDINGS
    if not report.capture["complete"] or not report.totals["calls"]:
        return COULD_NOT_TELL
    if strict and report.totals["unknown"]:
        return COULD_NOT_TELL
    return PASSED


def _too_much(memory: Memory) -> bool:
    """Whether the Mac that was asked about would raise; no Mac is asked about unless the user does."""
    mac = asked(memory)
    return mac is not None and mac.state == "raises"
