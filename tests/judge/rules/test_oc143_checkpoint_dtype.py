from __future__ import annotations

from opcheck.data.registrations import load
from opcheck.model.records import Birth
from tests.judge.rules.checking import findings_by
from tests.made import call


def _saved(dtype: str, name: str) -> Birth:
    return Birth(tensor=0, dtype=dtype, how="file", api="model.pt", name=name)


def test_one_finding_a_file_and_dtype() -> None:
    births = (_saved("float64", "mean"), _saved("float64", "var"), _saved("complex64", "roots"))
    (finding,) = findings_by("OC143", call("aten::mm"), births=births)
    assert finding.message == (
        "2 tensors in model.pt are float64 (mean, var): loading the file onto mps fails"
    )
    assert finding.prints.startswith("Cannot convert a MPS Tensor to float64 dtype")
    assert finding.count == 2


def test_silent_without_a_file_and_on_dtypes_that_can_be_loaded() -> None:
    assert not findings_by("OC143", call("aten::mm"))
    assert not findings_by("OC143", call("aten::mm"), births=(_saved("complex64", "roots"),))
    elsewhere = Birth(tensor=3, dtype="float64", how="numpy", name="table")
    assert not findings_by("OC143", call("aten::mm"), births=(elsewhere,))


def test_float8_is_cast_on_mps_before_it_is_used() -> None:
    births = (_saved("float8_e5m2", "w"),)
    statements = (load().statements.by_id["dtype-float8-cast"],)
    (finding,) = findings_by("OC143", call("aten::mm"), births=births, statements=statements)
    assert finding.message == "1 tensor in model.pt is float8_e5m2 (w): a cast of it on mps raises"
    assert finding.prints.startswith("Trying to convert Float8_e5m2 to the MPS backend")
    assert not findings_by("OC143", call("aten::mm"), births=births)
