from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call, make_statement, spec

LONG = spec(2, shape=(2**31,), dtype="int8")
HEAVY = spec(2, shape=(2**16, 2**15), dtype="float32")


def test_a_long_dimension() -> None:
    (finding,) = findings_by("OC131", call("aten::mm", 3, outputs=(LONG,)))
    assert finding.message.startswith("aten::mm: int8[2147483648] has a dimension above 2**31 - 1")
    assert finding.prints == "MPSGraph does not support tensor dims larger than INT_MAX"
    assert [place.location.line for place in finding.locations if place.location] == [3]


def test_many_bytes() -> None:
    calls = [call("aten::mm", inputs=(HEAVY,)), call("aten::mm", inputs=(HEAVY,))]
    (finding,) = findings_by("OC131", *calls)
    assert finding.message.startswith("aten::mm: float32[65536, 32768] has more than 2**32 bytes")
    assert (finding.count, len(finding.locations)) == (2, 1)


def test_silent_up_to_the_limit_and_on_the_cpu() -> None:
    assert not findings_by(
        "OC131", call("aten::mm", outputs=(spec(2, shape=(2**31 - 1,), dtype="int8"),))
    )
    assert not findings_by(
        "OC131", call("aten::mm", outputs=(spec(2, shape=(2**31,), device="cpu"),))
    )


def test_silent_where_a_statement_speaks() -> None:
    result = make_statement("long", condition="self.numel > 5")
    assert not findings_by("OC131", call("aten::mm", outputs=(LONG,)), statements=(result,))
