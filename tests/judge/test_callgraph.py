"""The regions of a run, what each side does, and where the CPU waits."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.judge.callgraph import RoutedCall, common_route, dataflow, partition, route_calls, route_of, sum_by_route
from opcheck.judge.judge import judge_all
from opcheck.model.records import OpCall, Partition, TensorSpec, Verdict
from tests.made import call, make_lists, make_report, make_target, spec

LISTS = make_lists()
#: one element of six float32 numbers
SIZE = 24


def step(op: str, reads: Sequence[TensorSpec | int], makes: Sequence[TensorSpec | int]) -> OpCall:
    return call(
        f"aten::{op}",
        inputs=tuple(spec(read) if isinstance(read, int) else read for read in reads),
        outputs=tuple(spec(make) if isinstance(make, int) else make for make in makes),
    )


def routed(calls: Sequence[OpCall]) -> list[RoutedCall]:
    target = make_target()
    return route_calls(calls, judge_all(calls, target, LISTS), target, LISTS)


def parts(*calls: OpCall) -> Partition:
    return partition(routed(calls))[0]


def edges(*calls: OpCall) -> set[tuple[int, int]]:
    return set(dataflow(calls, ["mps"] * len(calls)).edges)


def shape(result: Partition) -> list[tuple[str, int]]:
    return [(region.side, region.calls) for region in result.regions]


def test_an_empty_trace_has_no_regions() -> None:
    assert parts() == Partition(regions=(), transfers_to_cpu=0, transfers_to_mps=0, bytes_to_cpu=0, bytes_to_mps=0)


def test_a_native_chain_is_one_region_without_copies() -> None:
    result = parts(step("mm", [1], [2]), step("relu", [2], [3]))
    assert shape(result) == [("mps", 2)]
    assert result.transfers_to_cpu == result.transfers_to_mps == 0


def test_one_fallback_in_a_chain_makes_two_boundaries() -> None:
    result = parts(step("mm", [1], [2]), step("foo", [2], [3]), step("relu", [3], [4]))
    assert shape(result) == [("mps", 1), ("cpu", 1), ("mps", 1)]
    assert (result.transfers_to_cpu, result.transfers_to_mps) == (1, 1)
    assert (result.bytes_to_cpu, result.bytes_to_mps) == (SIZE, SIZE)
    cpu = result.regions[1]
    assert (cpu.first, cpu.last, cpu.bytes_in, cpu.bytes_out) == (1, 1, SIZE, SIZE)


def test_fallbacks_in_a_row_share_no_copies() -> None:
    result = parts(step("foo", [1], [2]), step("foo", [2], [3]))
    assert shape(result) == [("cpu", 2)]
    assert (result.transfers_to_cpu, result.transfers_to_mps) == (2, 2)


def test_every_argument_is_copied_even_twice_the_same_one() -> None:
    result = parts(step("foo", [1, 1, 2], [3, 4]))
    assert (result.transfers_to_cpu, result.transfers_to_mps) == (3, 2)


def test_an_argument_on_the_cpu_is_not_copied() -> None:
    result = parts(step("foo", [1, spec(2, device="cpu")], [spec(3, device="cpu")]))
    assert (result.transfers_to_cpu, result.transfers_to_mps) == (1, 0)


def test_what_is_written_in_place_is_copied_back_once() -> None:
    result = parts(step("foo", [1, 2], [1]))
    assert (result.transfers_to_cpu, result.transfers_to_mps) == (2, 1)


def test_what_is_written_without_being_returned_is_copied_back() -> None:
    result = parts(step("foo", [spec(1, written=True), spec(2, written=True), 3], []))
    assert (result.transfers_to_cpu, result.transfers_to_mps) == (3, 2)


def test_bytes_follow_the_dtype() -> None:
    result = parts(step("foo", [spec(1, dtype="int64")], [spec(2, dtype="bool")]))
    assert (result.bytes_to_cpu, result.bytes_to_mps) == (48, 6)


def test_a_native_branch_beside_a_fallback_stays_one_region() -> None:
    result = parts(step("mm", [1], [2]), step("foo", [2], [3]), step("relu", [2], [4]), step("mm", [3, 4], [5]))
    # The last call needs the result of the fallback, so it cannot join the first two.
    assert shape(result) == [("mps", 2), ("cpu", 1), ("mps", 1)]


def test_calls_that_share_no_data_are_regions_of_their_own() -> None:
    assert shape(parts(step("mm", [1], [2]), step("mm", [3], [4]))) == [("mps", 1), ("mps", 1)]


def test_unknown_and_unsupported_calls_count_as_neither_side() -> None:
    result = parts(step("nope", [1], [2]), step("stub", [2], [3]))
    assert shape(result) == [("unknown", 1), ("raises", 1)]
    assert result.transfers_to_cpu == 0


def test_a_write_in_place_makes_the_writer_the_producer() -> None:
    calls = step("mm", [1], [2]), step("add_.Tensor", [2], [2]), step("relu", [2], [3])
    assert edges(*calls) == {(0, 1), (1, 2)}


def test_a_write_reaches_the_readers_of_a_view() -> None:
    view = spec(3, 2)
    calls = (step("mm", [1], [2]), step("view", [2], [view]), step("add_.Tensor", [2], [2]), step("relu", [view], [4]))
    # The reader depends on the call that made the view and on the one that last wrote its memory.
    assert edges(*calls) == {(0, 1), (0, 2), (1, 3), (2, 3)}


def test_a_write_through_a_view_reaches_the_readers_of_its_base() -> None:
    view = spec(3, 2)
    calls = (
        step("mm", [1], [2]),
        step("view", [2], [view]),
        step("foo", [spec(3, 2, written=True)], []),
        step("relu", [2], [4]),
    )
    assert (2, 3) in edges(*calls)


_TENSORS = st.integers(1, 6)
_STEPS = st.builds(
    step,
    st.sampled_from(["mm", "foo", "embedding_renorm_", "nope", "stub"]),
    st.lists(_TENSORS, max_size=3),
    st.lists(_TENSORS, max_size=2, unique=True),
)


@given(st.lists(_STEPS, max_size=12))
def test_regions_cover_every_call_once_and_have_no_cycles(calls: list[OpCall]) -> None:
    result, graph = partition(routed(calls))
    assert sum(region.calls for region in result.regions) == len(calls)
    region_of = [graph.nodes[node]["region"] for node in range(len(calls))]
    quotient = nx.quotient_graph(graph, lambda a, b: region_of[a] == region_of[b])
    assert nx.is_directed_acyclic_graph(quotient)
    for source, reader in graph.edges:
        same_side = graph.nodes[source]["side"] == graph.nodes[reader]["side"]
        assert same_side or region_of[source] != region_of[reader]


@given(st.lists(_STEPS, max_size=12))
def test_only_the_cpu_regions_move_bytes(calls: list[OpCall]) -> None:
    result = parts(*calls)
    assert sum(r.bytes_in for r in result.regions) == result.bytes_to_cpu
    assert sum(r.bytes_out for r in result.regions) == result.bytes_to_mps
    assert all(r.side == "cpu" for r in result.regions if r.bytes_in or r.bytes_out)


# -- What each side does, and where the CPU waits --


def test_work_is_counted_by_the_side_that_does_it() -> None:
    report = make_report(call("aten::mm", flops=30), call("aten::foo", flops=10), call("aten::foo"), call("aten::stub"))
    assert [(work.side, work.calls, work.flops, work.nbytes) for work in report.work] == [
        ("mps", 1, 30, 48),
        ("cpu", 2, 10, 96),
        ("raises", 1, 0, 48),
    ]


def test_a_view_touches_no_bytes_and_a_write_in_place_does() -> None:
    view = call("aten::relu", inputs=(spec(1, storage=7),), outputs=(spec(2, storage=7),))
    write = call("aten::relu", inputs=(spec(1, storage=7, written=True),), outputs=(spec(1, storage=7),))
    assert [work.nbytes for work in make_report(view).work] == [0]
    assert [work.nbytes for work in make_report(write).work] == [48]


def test_the_cpu_waits_for_values_for_shapes_and_for_copies() -> None:
    on_cpu = spec(3, device="cpu")
    report = make_report(
        call("aten::mm", 1, outputs=(), waits=True),
        call("aten::mm", 1, outputs=(), waits=True),
        call("aten::mm", 2, waits=True),
        call("aten::mm", 3, outputs=(on_cpu,)),
        call("aten::mm", 4, inputs=(spec(1), spec(3, device="cpu", written=True))),
    )
    assert [(entry.why, entry.place.line, entry.place.count) for entry in report.synchronizations] == [
        ("a value", "model.py:1", 2),
        ("a shape", "model.py:2", 1),
        ("a copy to the CPU", "model.py:3", 1),
        ("a copy to the CPU", "model.py:4", 1),
    ]


def test_a_copy_that_is_only_queued_is_not_waited_for() -> None:
    queued = {"non_blocking": True}
    on_cpu, half = spec(3, device="cpu"), spec(3, dtype="float16", device="cpu")
    report = make_report(
        call("aten::mm", 1, outputs=(on_cpu,), arguments=queued), call("aten::mm", 2, outputs=(half,), arguments=queued)
    )
    assert [entry.place.line for entry in report.synchronizations] == ["model.py:2"]


def test_nothing_waits_on_the_cpu_before_the_run_or_in_a_fallback() -> None:
    on_cpu = spec(1, device="cpu")
    report = make_report(
        call("aten::mm"),
        call("aten::mm", inputs=(on_cpu,), outputs=(on_cpu,), waits=True),
        call("aten::foo", waits=True),
    )
    assert report.synchronizations == ()


def test_the_work_is_counted_by_route_without_views() -> None:
    lists = load()
    target = Target(torch=Version(2, 15), macos=Version(15, 0))
    native = Verdict(status="native", because="")
    fallback = Verdict(status="fallback", kind="env", because="")
    routes = [
        route_of(call("aten::native_batch_norm"), native, target, lists),
        route_of(call("aten::gelu"), native, target, lists),
        route_of(call("aten::gelu"), fallback, target, lists),
        route_of(call("mylib::foo"), native, target, lists),
    ]
    assert routes == ["graph", "metal", "cpu", "unknown"]
    rows = sum_by_route((route, 2, 10) for route in routes)
    assert [(row.route, row.calls, row.flops) for row in rows] == [
        (route, 2, 10) for route in ("graph", "metal", "cpu", "unknown")
    ]
    assert common_route(["metal", "view"]) == "metal"
    assert common_route(["metal", "graph"]) == "either"
