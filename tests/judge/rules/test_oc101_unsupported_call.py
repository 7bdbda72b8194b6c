from __future__ import annotations

from opcheck.judge.assembly import report
from tests.judge.rules.checking import findings_by
from tests.made import call, make_lists, make_target, make_trace


def test_fires_on_a_call_that_raises() -> None:
    (finding,) = findings_by("OC101", call("aten::stub", 7), call("aten::stub", 7))
    assert finding.severity == "error"
    assert finding.message == ("aten::stub: what torch 2.13.0 registers for MPS does nothing but raise")
    assert finding.count == 2
    assert [(str(p.location), p.count) for p in finding.locations] == [("model.py:7", 2)]


def test_silent_on_native_fallback_and_unknown_calls() -> None:
    assert not findings_by("OC101", call("aten::mm"), call("aten::foo"), call("aten::nope"))


def test_names_the_release_that_has_a_kernel() -> None:
    lists = make_lists({"aten::x": {"2.12": "error_stub", "2.13": "error_stub", "2.14": "kernel"}})
    made = report(make_trace(call("aten::x")), make_target(), lists)
    assert made.findings[0].hint.startswith("torch 2.14 has an MPS kernel for it; ")


def test_a_mix_of_devices_has_its_own_way_out() -> None:
    (finding,) = findings_by("OC101", call("aten::mm", refusal=("device_mismatch", "two devices")))
    assert finding.hint == "move every tensor of the call to one device: .to('mps')"
    assert finding.prints == "two devices"


def test_a_refusal_promises_no_other_release() -> None:
    (finding,) = findings_by("OC101", call("aten::mm", refusal=("rank", "too many dimensions")))
    assert "torch" not in finding.hint
