from __future__ import annotations

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.judge.assembly import report
from opcheck.model.records import Birth
from tests.judge.rules.checking import findings_by
from tests.made import call, make_trace


def _saved(dtype: str, name: str) -> Birth:
    return Birth(tensor=0, dtype=dtype, how="file", api="model.pt", name=name)


def test_one_finding_a_file_and_dtype() -> None:
    births = (_saved("float64", "mean"), _saved("float64", "var"), _saved("complex64", "roots"))
    (finding,) = findings_by("OC143", call("aten::mm"), births=births)
    assert finding.message == ("2 tensors in model.pt are float64 (mean, var): loading the file onto mps fails")
    assert finding.prints.startswith("Cannot convert a MPS Tensor to float64 dtype")
    assert finding.count == 2


def test_silent_without_a_file_and_on_dtypes_that_can_be_loaded() -> None:
    assert not findings_by("OC143", call("aten::mm"))
    assert not findings_by("OC143", call("aten::mm"), births=(_saved("complex64", "roots"),))
    elsewhere = Birth(tensor=3, dtype="float64", how="numpy", name="table")
    assert not findings_by("OC143", call("aten::mm"), births=(elsewhere,))


@pytest.mark.parametrize(
    ("dtype", "torch", "prints"),
    [
        ("float8_e5m2", "2.12", "Trying to convert Float8_e5m2 to the MPS backend"),
        ("float8_e5m2", "2.15", "Undefined type Float8_e5m2"),
        ("float8_e4m3fn", "2.14", "Undefined type Float8_e4m3fn"),
        ("float8_e4m3fn", "2.15", ""),
    ],
)
def test_float8_is_cast_on_mps_before_it_is_used(dtype: str, torch: str, prints: str) -> None:
    lists = load()
    trace = make_trace(call("aten::mm"), births=(_saved(dtype, "w"),))
    audited = report(trace, Target(torch=Version.parse(torch), macos=Version(26)), lists)
    found = [finding for finding in audited.findings if finding.rule == "OC143"]
    assert [finding.message for finding in found] == (
        [f"1 tensor in model.pt is {dtype} (w): a cast of it on mps raises"] if prints else []
    )
    assert all(finding.prints.startswith(prints) for finding in found)
