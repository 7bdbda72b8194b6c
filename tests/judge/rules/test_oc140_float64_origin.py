from __future__ import annotations

from opcheck.model.records import Birth, SourceLocation
from tests.judge.rules.checking import findings_by
from tests.made import call, spec

LINE = SourceLocation(
    file="model.py", line=7, function="Net.__init__", text='self.register_buffer("window", torch.from_numpy(window))'
)
BIRTH = Birth(tensor=1, dtype="float64", how="numpy", api="torch.from_numpy", location=LINE, name="window")
CPU = (spec(1, dtype="float64", device="cpu"),)
MPS = (spec(2, dtype="float64"),)
MOVE = call("aten::_to_copy", inputs=CPU, outputs=MPS, phase="move", location=None, module="window")


def test_names_the_line_of_the_origin_and_what_fails() -> None:
    (finding,) = findings_by("OC140", MOVE, call("aten::relu", inputs=MPS), births=(BIRTH,))
    assert finding.severity == "error"
    assert finding.message == (
        "float64 begins here: torch.from_numpy takes the float64 of a NumPy array (window); its move to mps fails"
    )
    assert str(finding.locations[0].location) == "model.py:7"
    assert finding.prints.startswith("Cannot convert a MPS Tensor to float64 dtype")
    assert finding.remedy == ('self.register_buffer("window", torch.from_numpy(window).to(torch.float32))')
    assert "make it float32 where it begins" in finding.hint
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1 does not help" in finding.hint


def test_one_finding_an_origin_however_many_calls_fail() -> None:
    cast = call("aten::_to_copy", 3, outputs=MPS, arguments={"dtype": "float64"})
    after = [call("aten::relu", line, inputs=MPS, outputs=MPS) for line in range(4, 9)]
    (finding,) = findings_by("OC140", cast, *after)
    assert [str(place.location) for place in finding.locations] == ["model.py:3"]
    assert "aten::_to_copy at model.py:3" in finding.message
    assert finding.count == 6


def test_silent_on_float64_that_stays_on_the_cpu() -> None:
    assert not findings_by("OC140", call("aten::mm", inputs=CPU, outputs=(spec(3),)), births=(BIRTH,))
    assert not findings_by("OC140", call("aten::mm"))
