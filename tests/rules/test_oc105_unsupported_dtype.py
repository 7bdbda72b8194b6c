from __future__ import annotations

from tests.made import call, spec
from tests.rules.found import found

REFUSAL = ("float64", "Cannot convert a MPS Tensor to float64 dtype")


def test_fires_on_float64_and_leaves_no_second_finding() -> None:
    made = call("aten::_to_copy", inputs=(spec(1, dtype="float64"),), refusal=REFUSAL)
    (finding,) = found("OC105", made)
    assert finding.prints == REFUSAL[1]
    assert finding.hint == "cast before the move to MPS: float64 -> float32"
    assert not found("OC101", made)


def test_silent_on_other_refusals() -> None:
    assert not found("OC105", call("aten::mm", refusal=("device_mismatch", "two devices")))
    assert not found("OC105", call("aten::mm", inputs=(spec(1, dtype="float64"),)))
