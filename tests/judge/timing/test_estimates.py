"""Intervals of time from the work of a run, and what would make it faster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from opcheck.common.vocabulary import RouteKind
from opcheck.data.chips import CHIPS, FIT
from opcheck.data.registrations import load
from opcheck.judge.timing.estimates import estimate, list_speedups, middle
from opcheck.model.records import CallGroup, CallWork, Report, TimeEstimate, Verdict, Workload
from tests.made import call, make_report


def row(
    family: str = "memory",
    *,
    flops: int = 0,
    nbytes: int = 0,
    count: int = 1,
    dtype: str = "float32",
    route: RouteKind = "metal",
) -> CallWork:
    return CallWork(family=family, route=route, dtype=dtype, flops=flops, nbytes=nbytes, launches=1, count=count)


def on(chip: str, *rows: CallWork, **more: Any) -> TimeEstimate:
    work = Workload(unit="pass", covers="a forward pass", rows=rows, **more)
    return estimate(work, chip, CHIPS.load().chips[chip].gpus, FIT.load().parameters)


def square(size: int, dtype: str = "float32") -> CallWork:
    itemsize = 4 if dtype == "float32" else 2
    return row("matrix", flops=2 * size**3, nbytes=3 * size**2 * itemsize, dtype=dtype)


#: A token of a model of 8 billion parameters in 16 bits: its weights, in 225 products, and small calls between them.
TOKEN = (
    row("matrix", flops=2 * 35_500_000, nbytes=71_000_000, count=225, dtype="float16"),
    row(nbytes=16_384, count=800, dtype="float16"),
)


@pytest.mark.parametrize("chip", CHIPS.load().chips)
def test_two_thousand_tiny_calls_are_bound_by_launches(chip: str) -> None:
    result = on(chip, row(nbytes=512, count=2000))
    assert result.bound == "launch"
    assert result.launches == 2000
    assert result.low_seconds >= 2000 * 1e-6


@pytest.mark.parametrize("chip", CHIPS.load().chips)
def test_a_large_product_is_bound_by_compute(chip: str) -> None:
    assert on(chip, square(8192)).bound == "compute"


@pytest.mark.parametrize("chip", ["M1", "M2", "M3 Pro", "M4", "M4 Pro", "M1 Max", "M5"])
def test_a_token_is_bound_by_memory_near_the_published_bandwidth(chip: str) -> None:
    result = on(chip, *TOKEN)
    assert result.bound == "memory"
    published = 225 * 71_000_000 / (CHIPS.load().chips[chip].gpus[-1].gb_s * 1e9)
    assert published * 0.99 <= result.low_seconds <= published * 1.3


def test_no_interval_is_below_the_published_rate() -> None:
    for chip, figures in CHIPS.load().chips.items():
        result = on(chip, square(4096))
        assert result.low_seconds >= 2 * 4096**3 / (figures.gpus[-1].tflops * 1e12) * 0.999
        assert result.low_seconds < result.high_seconds


@pytest.mark.parametrize("chip", CHIPS.load().chips)
def test_the_shares_are_one(chip: str) -> None:
    result = on(chip, square(512), *TOKEN, row(nbytes=512, count=99), waits=3, copies=2, copied=9)
    assert sum(result.shares.values()) == pytest.approx(1, abs=0.01)
    assert sum(result.families.values()) == pytest.approx(result.shares["compute"] + result.shares["memory"], abs=0.01)
    assert result.shares[result.bound] == max(result.shares.values())


def test_more_work_takes_longer() -> None:
    small, large = on("M4", square(1024)), on("M4", square(2048))
    assert (small.low_seconds, small.high_seconds) < (large.low_seconds, large.high_seconds)


def test_waits_and_copies_are_bounds_of_their_own() -> None:
    assert on("M4", row(nbytes=512), waits=50).bound == "wait"
    assert on("M4", row(nbytes=512), copies=50, copied=10**9).bound == "copy"


def test_a_call_on_the_cpu_makes_the_gpu_wait() -> None:
    result = on("M4", row("matrix", flops=10**12, nbytes=10**6, route="cpu"))
    assert result.bound == "wait"
    assert result.launches == 0


def test_a_call_without_a_formula_widens_the_interval() -> None:
    counted, uncounted = on("M4", row(nbytes=10**9)), on("M4", row("none", nbytes=10**9))
    assert (counted.without_formula, uncounted.without_formula) == (0, 1)
    assert uncounted.high_seconds > 3 * counted.high_seconds
    assert uncounted.low_seconds <= counted.low_seconds


def test_indexing_reaches_less_of_the_bandwidth() -> None:
    assert middle(on("M4", row("index", nbytes=10**9))) > 2 * middle(on("M4", row(nbytes=10**9)))


def test_only_m5_multiplies_halves_faster() -> None:
    for chip, faster in {"M4": False, "M5": True}.items():
        whole, half = on(chip, square(8192)), on(chip, square(8192, "float16"))
        assert (middle(half) < 0.6 * middle(whole)) == faster


def test_m1_has_no_arithmetic_in_bfloat16() -> None:
    half, brain = on("M1", square(8192, "float16")), on("M1", square(8192, "bfloat16"))
    assert middle(brain) > 1.5 * middle(half)


def test_an_interval_is_about_every_gpu_that_the_chip_is_sold_with() -> None:
    gpus = CHIPS.load().chips["M4 Max"].gpus
    work = Workload(unit="pass", covers="", rows=(square(8192),))
    both, few, many = (estimate(work, "M4 Max", part, FIT.load().parameters) for part in (gpus, gpus[:1], gpus[1:]))
    assert both.gpu_cores == (32, 40)
    assert both.low_seconds == pytest.approx(many.low_seconds, rel=0.02)
    assert both.high_seconds == pytest.approx(few.high_seconds, rel=0.02)
    assert many.high_seconds < few.high_seconds


def test_few_calls_are_faster_on_the_cpu_and_large_products_are_not() -> None:
    tiny, large = on("M4", row(nbytes=512, count=100)), on("M4", square(8192))
    assert tiny.cpu_low_seconds * tiny.cpu_high_seconds < tiny.low_seconds * tiny.high_seconds
    assert large.cpu_low_seconds * large.cpu_high_seconds > large.low_seconds * large.high_seconds


def test_a_spread_is_what_the_parameters_state() -> None:
    narrow = msgspec.structs.replace(FIT.load().parameters, launch_spread=0.5)
    work = Workload(unit="pass", covers="", rows=(row(nbytes=512, count=2000),))
    result = estimate(work, "M4", CHIPS.load().chips["M4"].gpus, narrow)
    assert result.high_seconds / result.low_seconds == pytest.approx(2, rel=0.1)


# -- What a report names that would make a run faster --


def work(*, nbytes: int = 512, count: int = 1, flops: int = 0, dtype: str = "float32", waits: int = 0) -> Workload:
    row = CallWork(
        family="matrix" if flops else "memory",
        route="metal",
        dtype=dtype,
        flops=flops,
        nbytes=nbytes,
        launches=1,
        count=count,
    )
    return Workload(unit="pass", covers="", rows=(row,), waits=waits, waits_at="train.py:31" * bool(waits))


def report_on(torch: str, route: RouteKind = "metal", op: str = "aten::mm") -> Report:
    report = make_report(call("aten::mm"))
    native = Verdict(status="native", because="registered")
    group = CallGroup.judged(op, native, count=500, route=route)
    target = msgspec.structs.replace(report.target, torch=torch)
    return msgspec.structs.replace(report, target=target, groups=(group,))


def lines(part: Workload, report: Report | None = None, chip: str = "M4") -> str:
    gpus, parameters = CHIPS.load().chips[chip].gpus, FIT.load().parameters
    estimated = estimate(part, chip, gpus, parameters)
    return "\n".join(list_speedups(report or report_on("2.15"), part, estimated, gpus, parameters, load()))


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
