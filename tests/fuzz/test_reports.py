"""Saved reports that are damaged, for the verbs that read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from opcheck.reproducer import program_check
from tests.fuzz.documents import as_json, damaged
from tests.fuzz.effort import fuzzed
from tests.fuzz.trial import Trial

GOLDEN = Path(__file__).parents[1] / "render" / "golden"
REPORTS = [json.loads((GOLDEN / f"{name}.json").read_text()) for name in ("native", "broken", "everything")]
WHOLE = as_json(REPORTS[2])
DAMAGED = damaged(REPORTS)
#: What failed once: a word that YAML's own reader cannot read, a target without its torch, digits that Python refuses.
KEPT = (
    b"schema: !!bool maybe",
    as_json({**REPORTS[1], "target": {"macos": "15.0", "cpu_fallback": False}}),
    as_json({**REPORTS[2], "target": {**REPORTS[2]["target"], "torch": "9" * 5000}}),
)
ASKED = ("text", "markdown", "json", "yaml")


@fuzzed(
    st.tuples(DAMAGED, st.booleans(), st.sampled_from(ASKED)),
    quick=60,
    long=6000,
    kept=[(report, first, "text") for report in KEPT for first in (True, False)],
)
def test_two_reports_are_compared(trial: Trial, content: tuple[bytes, bool, str]) -> None:
    report, first, name = content
    files = {"old.json": report, "new.json": WHOLE}
    if not first:
        files = {"old.json": WHOLE, "new.json": report}
    trial(["diff", "old.json", "new.json", "-f", name], files)


@fuzzed(
    st.tuples(DAMAGED, st.booleans(), st.sampled_from(ASKED)),
    quick=60,
    long=6000,
    kept=[(report, first, "text") for report in KEPT for first in (True, False)],
)
def test_a_prediction_is_verified(trial: Trial, content: tuple[bytes, bool, str]) -> None:
    report, first, name = content
    files = {"said.json": report, "seen.json": WHOLE}
    if not first:
        files = {"said.json": WHOLE, "seen.json": report}
    trial(["verify", "said.json", "seen.json", "-f", name, "--propose", "new.yaml"], files)


@fuzzed(DAMAGED, quick=40, long=4000, kept=KEPT)
def test_findings_are_listed(trial: Trial, content: bytes) -> None:
    trial(["repro", "report.yaml"], {"report.yaml": content})


@fuzzed(
    st.tuples(
        DAMAGED,
        st.sampled_from(("repro", "issue")),
        st.sampled_from(("1", "2", "3", "OC102", "aten::svd", "0", "-1", "99", "9" * 5000, "x\x1b[2J")),
    ),
    quick=60,
    long=4000,
)
def test_a_program_is_written(trial: Trial, content: tuple[bytes, str, str]) -> None:
    report, verb, which = content
    with pytest.MonkeyPatch.context() as patch:
        # The program is written; nothing runs it.
        patch.setattr(program_check, "_run", lambda *_args: (1, "", "Error: no process is started here"))
        trial([verb, "report.json", which, "-o", "repro.txt"], {"report.json": report})
