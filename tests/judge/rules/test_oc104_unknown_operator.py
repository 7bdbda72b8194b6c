from __future__ import annotations

from opcheck.judge.assembly import report
from tests.judge.rules.checking import findings_by
from tests.made import call, make_lists, make_target, make_trace


def test_fires_on_an_extension() -> None:
    (finding,) = findings_by("OC104", call("mylib::op", registrations=("CPU",)))
    assert "namespace mylib" in finding.message
    assert finding.hint.startswith("register an MPS kernel for it")


def test_names_the_releases_that_have_the_operator() -> None:
    lists = make_lists({"aten::new": {"2.14": "kernel"}})
    made = report(make_trace(call("aten::new")), make_target("2.13"), lists)
    assert made.findings[0].hint.startswith("torch 2.14 has it; ")


def test_silent_on_known_calls_and_on_composites_that_were_not_followed() -> None:
    assert not findings_by("OC104", call("aten::mm"), call("aten::foo"), call("aten::implied"))
