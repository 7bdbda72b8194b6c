from __future__ import annotations

import pytest

from tests.judge.rules.checking import findings_by
from tests.made import call, problem


@pytest.mark.parametrize("kind", ["not_simulated", "opcheck_limit"])
def test_the_finding_says_that_a_mac_may_run_it(kind: str) -> None:
    (finding,) = findings_by("OC125", call("aten::mm"), complete=False, problems=(problem(kind, "no shape rule"),))
    assert finding.severity == "error"
    assert finding.message == "no shape rule"
    assert "a Mac may run this call" in finding.hint
    assert not findings_by("OC120", call("aten::mm"), complete=False, problems=(problem(kind),))


def test_silent_on_the_models_own_error() -> None:
    assert not findings_by("OC125", call("aten::mm"), complete=False, problems=(problem("model_raised"),))
