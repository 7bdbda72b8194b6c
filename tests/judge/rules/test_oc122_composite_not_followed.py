from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call


def test_fires_on_a_composite_that_was_not_followed() -> None:
    (finding,) = findings_by("OC122", call("aten::comp"))
    assert finding.severity == "warning"
    assert "--tracer dispatch" in finding.hint


def test_fires_on_a_composite_inside_of_one() -> None:
    (finding,) = findings_by("OC122", call("aten::comp", inner=("aten::implied",)))
    assert "aten::implied" in finding.message


def test_silent_when_it_was_followed_and_on_other_unknowns() -> None:
    assert not findings_by("OC122", call("aten::comp", inner=("aten::mm",)), call("mylib::op"))
