"""Which call of a group a report keeps, and in which form."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.judge.callgraph import example_of
from opcheck.model.records import OpCall, Verdict
from tests.made import call, spec

RAISES = Verdict(status="unsupported", because="it raises")
NATIVE = Verdict(status="native", because="a kernel")


def of_shape(*shape: int, line: int = 1) -> OpCall:
    return call("aten::mm", line, inputs=(spec(1, shape=shape),))


def test_the_smallest_call_is_kept_without_its_place() -> None:
    kept = example_of((of_shape(4, 4), of_shape(2, 2, line=2), of_shape(2, 2, line=3)), RAISES)
    assert kept is not None
    assert kept.inputs[0].shape == (2, 2)


def test_none_is_kept_of_calls_that_simply_run() -> None:
    assert example_of((of_shape(2),), NATIVE) is None
    for name in ("limitations", "advisories"):
        result = msgspec.structs.replace(NATIVE, **{name: ("some-statement",)})
        assert example_of((of_shape(2),), result) is not None


@pytest.mark.parametrize(
    ("shape", "stride", "told"),
    [
        ((2, 3), (3, 1), None),
        ((2, 3), (), None),
        ((2, 1), (1, 9), None),
        ((), (), None),
        ((2, 3), (1, 2), (1, 2)),
        ((2, 3), (0, 1), (0, 1)),
    ],
)
def test_only_strides_that_say_something_are_told(
    shape: tuple[int, ...], stride: tuple[int, ...], told: tuple[int, ...] | None
) -> None:
    kept = example_of((call("aten::op", inputs=(spec(1, shape=shape, stride=stride),)),), RAISES)
    assert kept is not None
    assert kept.inputs[0].stride == told
