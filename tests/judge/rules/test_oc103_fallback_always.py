from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call


def test_fires_with_and_without_the_variable() -> None:
    for variable in (False, True):
        (finding,) = findings_by("OC103", call("aten::embedding_renorm_"), cpu_fallback=variable)
        assert finding.severity == "warning"
        assert "will fall back to run on the CPU" in finding.prints


def test_silent_on_other_fallbacks_and_native_calls() -> None:
    assert not findings_by("OC103", call("aten::foo"), call("aten::mm"))
