from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import ErrorText, call, make_statement, spec

NO_BFLOAT16 = make_statement(
    "dtype-bfloat16",
    ops=("*",),
    dtypes=("bfloat16",),
    error=ErrorText(type="TypeError", text="MPS BFloat16 is only supported on ..."),
    summary="No bfloat16 tensor can be made on MPS.",
)
BFLOAT16 = (spec(9, dtype="bfloat16"),)


def test_fires_on_bfloat16_and_leaves_no_second_finding() -> None:
    made = call("aten::_to_copy", outputs=BFLOAT16)
    (finding,) = findings_by("OC105", made, statements=(NO_BFLOAT16,))
    assert finding.message == ("aten::_to_copy: No bfloat16 tensor can be made on MPS (torch 2.13.0, macOS 15.0)")
    assert finding.prints.startswith("MPS BFloat16 is only supported")
    assert finding.hint == "cast before the move to MPS: bfloat16 -> float16"
    assert not findings_by("OC101", made, statements=(NO_BFLOAT16,))


def test_one_finding_for_all_that_a_dtype_flows_through() -> None:
    (finding,) = findings_by(
        "OC105",
        call("aten::relu", 2, outputs=BFLOAT16),
        call("aten::mm", 3, outputs=BFLOAT16),
        call("aten::mm", 4, outputs=BFLOAT16),
        statements=(NO_BFLOAT16,),
    )
    assert finding.message.startswith("No bfloat16 tensor")
    assert finding.message.endswith("(3 calls of 2 operators)")
    assert (finding.op, finding.count) == ("", 3)
    assert [str(place.location) for place in finding.locations] == ["model.py:3", "model.py:4", "model.py:2"]


def test_leaves_float64_to_the_finding_at_its_origin() -> None:
    made = call("aten::_to_copy", outputs=(spec(9, dtype="float64"),))
    assert not findings_by("OC105", made)
    assert findings_by("OC140", made)


def test_a_refusal_of_the_capture_for_a_dtype_counts_too() -> None:
    (finding,) = findings_by("OC105", call("aten::mm", refusal=("dtype-mm", "no mm of int8")))
    assert finding.prints == "no mm of int8"
    assert finding.hint == "cast before the move to MPS"


def test_silent_on_other_refusals_and_on_float64_that_stays_on_the_cpu() -> None:
    assert not findings_by("OC105", call("aten::mm", refusal=("device_mismatch", "two devices")))
    assert not findings_by("OC105", call("aten::mm", inputs=(spec(1, dtype="float64", device="cpu"),)))


OF_DTYPE = make_statement("mm-half", dtypes=("float16",), way_out="Cast to float32.")


def test_a_kernel_that_refuses_a_dtype_gives_its_own_way_out() -> None:
    half = call("aten::mm", inputs=(spec(1, dtype="float16"),))
    (finding,) = findings_by("OC105", half, statements=(OF_DTYPE,))
    assert (finding.prints, finding.hint) == ("mm-half is refused", "Cast to float32")
    assert not findings_by("OC105", call("aten::mm"), statements=(OF_DTYPE,))
    assert not findings_by("OC101", half, statements=(OF_DTYPE,))
    assert not findings_by("OC106", half, statements=(OF_DTYPE,))


def test_silent_where_a_dtype_is_only_noted() -> None:
    noted = make_statement("dtype-some", ops=("*",), dtypes=("float32",), when="it depends")
    assert not findings_by("OC105", call("aten::mm"), statements=(noted,))


def test_a_body_without_a_kernel_is_no_matter_of_a_dtype_that_is_noted_beside() -> None:
    noted = make_statement("dtype-some", dtypes=("float32",), when="it depends")
    made = call("aten::comp", inner=("aten::mm", "aten::stub"))
    assert not findings_by("OC105", made, statements=(noted,))
    (finding,) = findings_by("OC101", made, statements=(noted,))
    assert finding.hint == findings_by("OC101", made)[0].hint
