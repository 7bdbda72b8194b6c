from __future__ import annotations

from opcheck.model.records import GroupLocation, Precision, PrecisionEvent, PrecisionLine
from tests.judge.rules.checking import findings_by
from tests.made import call

PLACE = GroupLocation.at(None, module="norm", count=1)
LINE = PrecisionLine(op="aten::sub.Tensor", place=PLACE, first=3, local=0.1, inherited=1e-7, total=0.1)


def test_the_first_divergence_and_broken_numbers_are_found() -> None:
    events = tuple(
        PrecisionEvent(kind=kind, op="aten::exp", place=PLACE, elements=2, of=9, first=4)
        for kind in ("overflow", "flips")
    )
    run = Precision(dtype="float16", limit=0.02, calls=9, divergence=LINE, crossing=LINE, events=events)
    first, second = findings_by("OC150", call("aten::mm"), precision=(run,))
    assert (first.op, second.op) == ("aten::sub.Tensor", "aten::exp")
    assert "relative error 1.0e-01" in first.message
    assert "opcheck explain variance" in first.hint
    assert second.message == "aten::exp: overflow in float16, in 2 of 9 elements"
    assert {first.severity, second.severity} == {"warning"}


def test_a_run_that_keeps_its_digits_is_no_finding() -> None:
    run = Precision(dtype="float32", limit=1e-5, calls=9, divergence=None, crossing=None)
    assert not findings_by("OC150", call("aten::mm"), precision=(run,))
