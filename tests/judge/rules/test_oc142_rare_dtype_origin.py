from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call, make_statement, spec

NO_UINT16 = make_statement("mm-uint16", dtypes=("uint16",))
MADE = call("aten::relu", 2, inputs=(), outputs=(spec(2, dtype="uint16"),), arguments={"dtype": "x"})


def test_fires_with_a_signed_dtype_to_take_instead() -> None:
    used = call("aten::mm", 3, inputs=(spec(2, dtype="uint16"),))
    (finding,) = findings_by("OC142", MADE, used, statements=(NO_UINT16,))
    assert "make it int32 where it begins" in finding.hint
    assert not findings_by("OC140", MADE, used, statements=(NO_UINT16,))


def test_silent_where_no_kernel_refuses() -> None:
    assert not findings_by("OC142", MADE, call("aten::mm", 3, inputs=(spec(2, dtype="uint16"),)))
