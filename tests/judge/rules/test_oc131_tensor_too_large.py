from __future__ import annotations

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.judge.rules.memory_limits import find_large_tensors
from opcheck.judge.rules.rule import Audited
from opcheck.model.records import Finding, OpCall, Partition, Trace, Verdict
from tests.judge.rules.checking import findings_by
from tests.made import call, make_statement, spec

LONG = spec(2, shape=(2**31,), dtype="int8")
HUGE = spec(3, shape=(2**16, 2**17), dtype="float16")
HEAVY = spec(3, shape=(2**16, 2**15), dtype="float32")


def found(made: OpCall, release: str, macos: str = "15.0") -> list[Finding]:
    """Return the findings of a native call on a release that the op lists have."""
    audited = Audited(
        groups=(),
        trace=Trace(model="m", calls=(made,)),
        target=Target(torch=Version.parse(release), macos=Version.parse(macos)),
        partition=Partition(),
        lists=load(),
        verdicts=(Verdict(status="native", because=""),),
    )
    return [*find_large_tensors.find(audited)]


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
    assert not findings_by("OC131", call("aten::mm", outputs=(spec(2, shape=(2**31 - 1,), dtype="int8"),)))
    assert not findings_by("OC131", call("aten::mm", outputs=(spec(2, shape=(2**31,), device="cpu"),)))


def test_silent_where_a_statement_speaks() -> None:
    result = make_statement("long", condition="self.numel > 5")
    assert not findings_by("OC131", call("aten::mm", outputs=(LONG,)), statements=(result,))


def test_all_operators_and_layers_are_one_finding() -> None:
    calls = [
        call("aten::mm.out", inputs=(HEAVY,), module="layer.0.act"),
        call("aten::mm.out", inputs=(HEAVY,), module="layer.1.act"),
        call("aten::mm", 2, inputs=(HEAVY,)),
    ]
    (finding,) = findings_by("OC131", *calls)
    assert finding.message.startswith("aten::mm, aten::mm.out: float32[65536, 32768] has more than")
    assert not finding.op
    assert [(place.module, place.count) for place in finding.locations] == [("layer.*.act", 2), ("net", 1)]


def test_silent_on_a_view_for_which_no_kernel_runs() -> None:
    view = spec(4, storage=3, shape=(2**15, 2**16))
    assert not findings_by("OC131", call("aten::transpose.int", inputs=(HEAVY,), outputs=(view,)))


@pytest.mark.parametrize(("release", "count"), [("2.15", 0), ("2.12", 1)])
def test_silent_on_attention_weights_that_the_kernel_does_not_write(release: str, count: int) -> None:
    query, value = (
        spec(number, shape=(1, 16, 16384, 64), argument=name) for number, name in ((5, "query"), (6, "value"))
    )
    weights = spec(7, shape=(1, 16, 16384, 16384))
    attention = call(
        "aten::_scaled_dot_product_attention_math_for_mps",
        inputs=(query, value),
        outputs=(spec(8, shape=(1, 16, 16384, 64)), weights),
    )
    assert len(found(attention, release)) == count


def test_macos_26_takes_more_bytes_but_not_more_elements() -> None:
    batch = call("aten::native_batch_norm", inputs=(HEAVY,))
    assert found(batch, "2.15")
    assert not found(batch, "2.15", "26.0")
    (finding,) = found(call("aten::native_batch_norm", inputs=(HUGE,)), "2.15", "26.0")
    assert finding.message.endswith("2**32 elements; MPSGraph computes the call, and may give wrong values")
    assert not finding.prints


#: The two ways of a softmax of more than 2**32 bytes: a graph up to 2.14 (SoftMax.mm), a Metal kernel in 2.15.
@pytest.mark.parametrize(
    ("op", "release", "ends"),
    [
        ("aten::_softmax", "2.12", ["MPSGraph computes the call, and may fail"]),
        ("aten::_softmax", "2.15", []),
        ("aten::native_batch_norm", "2.15", ["MPSGraph computes the call, and may fail"]),
        ("aten::bmm", "2.15", ["where the kernel goes through MPSGraph, it may fail"]),
    ],
)
def test_the_route_of_a_call_decides(op: str, release: str, ends: list[str]) -> None:
    messages = [finding.message for finding in found(call(op, inputs=(HEAVY,)), release)]
    assert [message.partition("; ")[2] for message in messages] == ends
