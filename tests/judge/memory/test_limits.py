"""Ranges as text, the sizes of a run as functions of its dimensions, and the boundaries that follow."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.common.errors import UsageError
from opcheck.common.vocabulary import LimitKind
from opcheck.judge.memory.estimate import cache, caches
from opcheck.judge.memory.limits import (
    DimensionRange,
    LimitReason,
    ScaledRun,
    check_names,
    find_boundary,
    neighbours,
    parse_range,
    second_sizes,
    table_end,
)
from opcheck.model.records import CacheShape, Lifetime, TensorSpec, Trace
from tests.made import call, make_trace


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("batch=1..64", DimensionRange("batch", 1, 64, 1)),
        ("height=512..2048", DimensionRange("height", 512, 2048, 64)),
        ("width=224..512:14", DimensionRange("width", 224, 512, 14)),
        ("frames=17..81", DimensionRange("frames", 17, 81, 4)),
    ],
)
def test_a_range_is_read(text: str, parsed: DimensionRange) -> None:
    assert parse_range(text) == parsed


@pytest.mark.parametrize("text", ["batch", "batch=4..2", "batch=4..4", "batch=0..4", "=1..2", "batch=a..b", "b=1..2:0"])
def test_a_range_that_is_none_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_range(text)
    assert "write --vary batch=1..64" in raised.value.hint


def test_an_unknown_dimension_lists_those_that_exist() -> None:
    with pytest.raises(UsageError) as raised:
        check_names([parse_range("foo=1..2")], {"batch": 1, "length": 128})
    assert raised.value.hint == "they have batch (1), length (128)"
    with pytest.raises(UsageError) as raised:
        check_names([parse_range("foo=1..2")], {})
    assert raised.value.hint == "they have none that could vary"


def _run(batch: int, length: int, height: int = 8) -> Trace:
    """A run with sizes of each form: constant, linear, quadratic, a line, a product."""
    shapes = [(5, 7), (batch, length), (batch, length, length), (batch, length + 3), (height * height, batch)]
    calls = [
        call("aten::mm", outputs=(TensorSpec(tensor=n, storage=n, dtype="float32", shape=shape),))
        for n, shape in enumerate(shapes)
    ]
    lives = tuple(
        Lifetime(storage=n, nbytes=each.outputs[0].nbytes, first=n, freed=None, kind="result")
        for n, each in enumerate(calls)
    )
    return make_trace(*calls, lifetimes=lives)


def test_two_runs_give_the_sizes_of_any_other() -> None:
    at = {"batch": 1, "length": 128, "height": 8}
    other = {**at, **second_sizes(at, list(at))}
    run = ScaledRun(_run(*at.values()), _run(*other.values()), at, other)
    assert run.has_same_calls
    for sizes in ({"batch": 7, "length": 200, "height": 24}, {"batch": 64, "length": 4096, "height": 8}):
        computed, real = run.trace(sizes), _run(*sizes.values())
        assert [life.nbytes for life in computed.lifetimes] == [life.nbytes for life in real.lifetimes]
        assert [each.outputs[0].shape for each in computed.calls] == [each.outputs[0].shape for each in real.calls]
    assert not run.is_rough


def test_other_calls_are_not_scaled() -> None:
    at, other = {"batch": 1}, {"batch": 5}
    longer = make_trace(*_run(5, 8).calls, call("aten::relu"))
    assert not ScaledRun(_run(1, 8), longer, at, other).has_same_calls


@pytest.mark.parametrize(("largest", "kind"), [(37, "memory"), (37, "shape"), (1000, "memory")])
def test_a_boundary_is_the_last_value_that_runs(largest: int, kind: LimitKind) -> None:
    ends = LimitReason(kind, "it ends")
    boundary = find_boundary(
        parse_range("batch=1..1000"),
        lambda value: kind == "memory" and value > largest,
        lambda value: ends if value > largest else None,
    )
    assert boundary.largest == largest
    assert boundary.reason == (None if largest == 1000 else ends)
    assert list(neighbours(boundary)) == ([1000] if largest == 1000 else [37, 38])


def test_a_table_of_positions_ends_a_length() -> None:
    def trace(length: int) -> Trace:
        weight = TensorSpec(tensor=1, storage=1, dtype="float32", shape=(16, 4), argument="weight")
        positions = TensorSpec(tensor=2, storage=2, dtype="int64", shape=(length,))
        shifted = msgspec.structs.replace(positions, tensor=3, storage=3)
        return make_trace(
            call("aten::arange", outputs=(positions,)),
            call("aten::add.Tensor", inputs=(positions,), outputs=(shifted,)),
            call("aten::embedding", inputs=(weight, shifted)),
        )

    assert table_end(trace(16)) is None
    end = table_end(trace(17))
    assert end is not None
    assert end.text.startswith("a table of 16 positions (aten::embedding")


def test_the_cache_by_its_kind() -> None:
    # Mistral 7B in half precision: 32 layers, 8 heads of 128, a window of 4,096 tokens in each layer.
    shape = CacheShape(layers=32, sliding=32, window=4096, heads=8, size=128, itemsize=2, longest=32768)
    small, large = cache(shape, 1024), cache(shape, 32768)
    assert small.dynamic == small.full == 2 * 32 * 8 * 128 * 2 * 1024
    assert large.dynamic == large.static == 4 * small.dynamic
    assert large.full == 32 * small.dynamic
    assert small.dynamic / 4 < small.quantized < small.dynamic / 2
    assert [each.context for each in caches(shape)] == [1024, 4096, 16384]
    assert list(caches(None)) == []
