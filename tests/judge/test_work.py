"""What each side does, and where the CPU waits."""

from __future__ import annotations

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.judge.work import common_route, route_of, sum_by_route
from opcheck.model.records import Verdict
from tests.made import call, make_report, spec


def test_work_is_counted_by_the_side_that_does_it() -> None:
    report = make_report(
        call("aten::mm", flops=30),
        call("aten::foo", flops=10),
        call("aten::foo"),
        call("aten::stub"),
    )
    assert [(work.side, work.calls, work.flops, work.nbytes) for work in report.work] == [
        ("mps", 1, 30, 48),
        ("cpu", 2, 10, 96),
        ("raises", 1, 0, 48),
    ]


def test_a_view_touches_no_bytes_and_a_write_in_place_does() -> None:
    view = call("aten::relu", inputs=(spec(1, storage=7),), outputs=(spec(2, storage=7),))
    write = call(
        "aten::relu", inputs=(spec(1, storage=7, written=True),), outputs=(spec(1, storage=7),)
    )
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
    assert [
        (entry.why, entry.place.line, entry.place.count) for entry in report.synchronizations
    ] == [
        ("a value", "model.py:1", 2),
        ("a shape", "model.py:2", 1),
        ("a copy to the CPU", "model.py:3", 1),
        ("a copy to the CPU", "model.py:4", 1),
    ]


def test_a_copy_that_is_only_queued_is_not_waited_for() -> None:
    queued = {"non_blocking": True}
    on_cpu, half = spec(3, device="cpu"), spec(3, dtype="float16", device="cpu")
    report = make_report(
        call("aten::mm", 1, outputs=(on_cpu,), arguments=queued),
        call("aten::mm", 2, outputs=(half,), arguments=queued),
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
