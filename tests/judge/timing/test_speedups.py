"""What a report names that would make a run faster."""

from __future__ import annotations

import msgspec

from opcheck.common.vocabulary import RouteKind
from opcheck.data.chips import load_chips, load_parameters
from opcheck.data.registrations import load
from opcheck.judge.timing.intervals import estimate
from opcheck.judge.timing.speedups import list_speedups
from opcheck.model.records import CallGroup, CallWork, Report, Verdict, Workload
from tests.made import call, make_report


def work(
    *, nbytes: int = 512, count: int = 1, flops: int = 0, dtype: str = "float32", waits: int = 0
) -> Workload:
    row = CallWork(
        family="matrix" if flops else "memory",
        route="metal",
        dtype=dtype,
        flops=flops,
        nbytes=nbytes,
        launches=1,
        count=count,
    )
    return Workload(
        unit="pass", covers="", rows=(row,), waits=waits, waits_at="train.py:31" * bool(waits)
    )


def report_on(torch: str, route: RouteKind = "metal", op: str = "aten::mm") -> Report:
    report = make_report(call("aten::mm"))
    native = Verdict(status="native", because="registered")
    group = CallGroup.judged(op, native, count=500, route=route)
    target = msgspec.structs.replace(report.target, torch=torch)
    return msgspec.structs.replace(report, target=target, groups=(group,))


def lines(part: Workload, report: Report | None = None, chip: str = "M4") -> str:
    gpus, parameters = load_chips()[chip].gpus, load_parameters()
    estimated = estimate(part, chip, gpus, parameters)
    return "\n".join(
        list_speedups(report or report_on("2.15"), part, estimated, gpus, parameters, load())
    )


def test_waits_are_named_with_their_line() -> None:
    assert "20 waits for the GPU, most at train.py:31" in lines(work(waits=20))
    assert "wait" not in lines(work(flops=10**13, waits=1))


def test_half_precision_is_named_where_it_gains() -> None:
    assert "float16 (--dtype float16): about 2.0 times as fast" in lines(work(nbytes=10**10))
    assert "float16" not in lines(work(nbytes=10**10, dtype="float16"))
    assert "float16" not in lines(work(flops=10**13))
    assert "float16" in lines(work(flops=10**13), chip="M5")


def test_many_launches_call_for_a_batch_and_for_the_cpu() -> None:
    many = lines(work(count=2000))
    assert "a larger batch: its 2,000 launches stay as many" in many
    assert "the CPU of the same Mac" in many
    assert "batch" not in lines(work(flops=10**13))


def test_compiling_is_named_from_the_release_whose_backend_is_no_prototype() -> None:
    assert "torch.compile" in lines(work(count=2000), report_on("2.8"))
    assert "torch.compile" not in lines(work(count=2000), report_on("2.7"))


def test_a_release_with_metal_kernels_is_named() -> None:
    early = lines(work(count=2000), report_on("2.4", "graph", "aten::exp"))
    assert "Metal kernels in place of MPSGraph for 500 calls" in early
    newest = load().releases[-1].line
    assert "MPSGraph" not in lines(work(count=2000), report_on(newest, "graph", "aten::exp"))
