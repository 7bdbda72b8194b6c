"""Whole runs over libraries that are made here: verdicts, mutations, and processes that end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

pytest.importorskip("llvmlite")

from opcheck.kernels import (
    air,
    drive,
    judging,
    kernel_child,
    kernel_names,
    launch,
    library,
    pointwise,
    reference,
    values,
)
from opcheck.kernels.judging import Expected
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.kernels.kernel_records import KernelOutcome, Task
from tests.kernels import made


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> KernelMachine:
    return KernelMachine(tmp_path_factory.mktemp("kernels"))


_SQUARE = "  %r = fmul float %x, %x"
_CRASH = "  %v = load volatile float, ptr null\n  %r = fadd float %v, %x"


def ran(tmp_path: Path, bodies: dict[str, str]) -> dict[str, KernelOutcome]:
    """The outcomes of a library of unary kernels, by name."""
    kept = tmp_path / "kernels" / "libraries"
    kept.mkdir(parents=True)
    data = made.metallib({name: made.unary(name, body) for name, body in bodies.items()})
    (kept / "metal_basic-2.99.0.metallib").write_bytes(data)
    cache = tmp_path / "wheels"
    result = kernel_child.run(library.read("2.99.0", cache), jobs=1, cache=cache)
    return {outcome.kernel: outcome for outcome in result.outcomes}


def test_verdicts_of_a_run_and_a_kernel_that_ends_its_process(tmp_path: Path) -> None:
    result = ran(
        tmp_path,
        {
            "sqr_dense_float_float": _SQUARE,
            "sqr_dense_scalar_float_float": "  %r = fadd float %x, %x",
            "neg_dense_float_float": _CRASH,
            "neg_dense_scalar_float_float": "  %r = fneg float %x",
            "unheardof_dense_float_float": _SQUARE,
            "unheardof_float": _SQUARE,
        },
    )
    right = result["sqr_dense_float_float"]
    assert (right.verdict, right.family, right.wrong) == ("right", "unary", 0)
    assert right.compared > 1000
    wrong = result["sqr_dense_scalar_float_float"]
    assert wrong.verdict == "wrong"
    assert wrong.smallest is not None
    assert (wrong.smallest.inputs, wrong.smallest.result, wrong.smallest.expected) == (("0.5",), "1", "0.25")
    ended = result["neg_dense_float_float"]
    assert (ended.verdict, ended.reason) == ("not run", "its process was ended by SIGSEGV")
    assert result["neg_dense_scalar_float_float"].verdict == "right"
    assert result["unheardof_dense_float_float"].reason == "no reference for the operation"
    assert result["unheardof_float"].reason == "its family is not driven"


def test_a_result_that_hangs_on_fusing_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    body = (
        "  %m = fmul float %x, %x\n  %n = fneg float %m\n"
        "  %e = call float @llvm.fmuladd.f32(float %x, float %x, float %n)\n"
        "  %z = fcmp ueq float %e, 0.0\n  %r = select i1 %z, float %m, float 0.0"
    )
    result = ran(tmp_path, {"sqr_dense_float_float": body, "sqr_dense_scalar_float_float": _SQUARE})
    assert result["sqr_dense_float_float"].verdict == "depends on fusing"
    reason = result["sqr_dense_float_float"].reason
    assert reason == "right only where a multiplication and an addition are rounded one by one"
    assert result["sqr_dense_scalar_float_float"].verdict == "right"


#: Changes that a mistake in a kernel could make, each of one instruction of a right square or exponential.
@pytest.mark.parametrize(
    ("operation", "body"),
    [
        pytest.param("sqr", "  %a = fmul float %x, %x\n  %r = fadd float %a, 0x3F1A36E2E0000000", id="a term"),
        pytest.param("sqr", "  %a = fmul float %x, %x\n  %r = fneg float %a", id="a sign"),
        pytest.param("sqr", "  %b = fptrunc float %x to half\n  %c = fpext half %b to float\n  %r = fmul float %c, %c", id="half"),
        pytest.param("sqr", "  %n = fcmp ogt float %x, 1.0e10\n  %a = fmul float %x, %x\n  %r = select i1 %n, float 0.0, float %a", id="large"),
        pytest.param("exp", "  %n = fcmp uno float %x, 0.0\n  %a = call float @air.exp.f32(float %x) #0\n  %r = select i1 %n, float 0.0, float %a", id="nan"),
        pytest.param("exp", "  %a = call float @air.exp.f32(float %x) #0\n  %r = fmul float %a, 0x3FF0001000000000", id="digits"),
        pytest.param("floor", "  %t = fptosi float %x to i32\n  %r = sitofp i32 %t to float", id="truncated"),
    ],
)  # fmt: skip
def test_mutations_are_found(machine: KernelMachine, operation: str, body: str) -> None:
    name = f"{operation}_dense_float_float"
    kernel = machine.kernel(machine.compile(made.unary(name, body), name))
    assert pointwise.Driver().judge(kernel_names.parse(name), kernel).wrong > 0


def expected(*numbers: float, slack: float = 0.0) -> Expected:
    value = torch.tensor(numbers, dtype=torch.float64)
    return Expected((value,), value, torch.full_like(value, slack))


def test_a_neighbour_is_no_error_and_a_far_one_is() -> None:
    first = torch.tensor([1.0])
    near, far = torch.tensor([1 + 2**-23]), torch.tensor([1 + 2**-15])
    assert judging.judge(expected(1.0), first, 1.0).ulps == 0
    assert judging.judge(expected(1.0), near, 1.0).wrong == 0
    assert judging.judge(expected(1.0), near, 0.5).wrong == 1
    assert judging.judge(expected(1.0), far, 16.0).wrong == 1
    assert judging.judge(expected(1.0, slack=1e-4), far, 16.0).wrong == 0


@pytest.mark.parametrize(
    ("value", "got", "wrong"),
    [
        (float("nan"), float("nan"), 0),
        (float("nan"), 1.0, 1),
        (1.0, float("nan"), 1),
        (float("inf"), float("inf"), 0),
        (float("inf"), float("-inf"), 1),
        (1e39, float("inf"), 0),
        (1e39, float("-inf"), 1),
        (1e-40, 0.0, 0),
        (1e-30, 0.0, 1),
    ],
)
def test_special_results(value: float, got: float, wrong: int) -> None:
    assert judging.judge(expected(value), torch.tensor([got]), 1.0).wrong == wrong


def test_integers_are_compared_as_their_type_holds_them() -> None:
    wrapped = Expected((torch.tensor([1]),), torch.tensor([128]))
    assert judging.judge(wrapped, torch.tensor([-128], dtype=torch.int8), 0.0).wrong == 0
    assert judging.judge(wrapped, torch.tensor([127], dtype=torch.int8), 0.0).wrong == 1


def test_the_smallest_of_the_grossly_wrong_is_named() -> None:
    value = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    got = torch.tensor([1.0, 2.0001, 0.0, 0.0])
    result = judging.judge(Expected((value,), value), got, 1.0)
    assert result.smallest is not None
    assert (result.wrong, result.smallest.inputs, result.smallest.gross) == (3, ("3",), True)


def test_values_are_the_same_every_time_and_hold_the_delicate_ones() -> None:
    first = values.single(torch.float32)
    values.single.cache_clear()
    assert torch.equal(first.nan_to_num(7), values.single(torch.float32).nan_to_num(7))
    for number in (float("inf"), 0.5, 2.5, 4.25, torch.finfo(torch.float32).smallest_normal):
        assert number in first.tolist()
    assert {0, 2**53 + 1, -(2**63), 2**63 - 1} <= {*values.single(torch.int64).tolist()}


def test_what_is_not_defined_is_left_out() -> None:
    numbers = torch.tensor([1, 7, -(2**31)], dtype=torch.int32)
    divisors = torch.tensor([0, 2, -1], dtype=torch.int32)
    left_out = reference.leave_out("div_floor", (numbers, divisors))
    assert left_out is not None
    assert left_out.tolist() == [True, False, True]
    shifted = reference.leave_out("bitwise_left_shift", (numbers, torch.tensor([31, 32, 1], dtype=torch.int32)))
    assert shifted is not None
    assert shifted.tolist() == [False, True, True]


_KEPT = "  %r = add i8 %x, 0"


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        pytest.param("copy_neg_dense_bool_bool", _KEPT, "  %r = xor i8 %x, 1", id="bool that the CPU refuses"),
        pytest.param("copy_identity_dense_scalar_float8_e4m3fn_float8_e4m3fn", _KEPT, "  %r = and i8 %x, 127", id="float8"),
        pytest.param("silu_dense_char_char",
                     "  %f = sitofp i8 %x to float\n  %n = fneg float %f\n  %e = call float @air.exp.f32(float %n) #0\n"
                     "  %d = fadd float %e, 1.0\n  %t = fdiv float %f, %d\n  %r = fptosi float %t to i8",
                     _KEPT, id="an integer"),
    ],
)  # fmt: skip
def test_dtypes_without_a_reference_of_their_own(machine: KernelMachine, name: str, right: str, wrong: str) -> None:
    verdicts = [
        pointwise.Driver().judge(
            kernel_names.parse(name), machine.kernel(machine.compile(made.unary(name, body, "i8"), name))
        )
        for body in (right, wrong)
    ]
    assert verdicts[0].wrong == 0
    assert verdicts[0].compared > 0
    assert verdicts[1].wrong > 0


def test_a_result_that_hangs_on_flushing_is_told_from_a_wrong_one(tmp_path: Path) -> None:
    # Zero for what is not, where 2**-126 times a number below 1 is flushed.
    body = (
        "  %s = fmul float %x, 0x3810000000000000\n  %z = fcmp oeq float %s, 0.0\n"
        "  %a = call float @air.fabs.f32(float %x) #0\n  %c = fcmp ogt float %a, 0.25\n"
        "  %f = and i1 %z, %c\n  %m = fmul float %x, %x\n  %r = select i1 %f, float 0.0, float %m"
    )
    result = ran(tmp_path, {"sqr_dense_float_float": body, "sqr_dense_scalar_float_float": "  %r = fadd float %x, %x"})
    assert result["sqr_dense_float_float"].verdict == "depends on flushing"
    assert result["sqr_dense_scalar_float_float"].verdict == "wrong"


def test_plain_arithmetic_of_the_cpu_is_no_defect_and_needs_no_vectors() -> None:
    value = torch.tensor([2.0], dtype=torch.float64)
    plain = torch.tensor([3.0], dtype=torch.float64)
    for got, wrong in ((3.0, 0), (2.0, 0), (4.0, 1)):
        result = judging.judge(Expected((value,), value, plain=plain), torch.tensor([got]), 1.0)
        assert result.wrong == wrong
    # A result that is no number is no excuse for another wrong one.
    nothing = Expected((value,), value, plain=torch.tensor([float("nan")], dtype=torch.float64))
    assert judging.judge(nothing, torch.tensor([4.0]), 1.0).wrong == 1
    assert judging.judge(nothing, torch.tensor([float("nan")]), 1.0).wrong == 0


def test_either_reading_of_a_denormal_input_is_right_and_a_third_is_wrong() -> None:
    tiny = torch.tensor([1e-40])
    case = pointwise.expect("exp2", (tiny * 0 + tiny,), ())
    assert judging.judge(case, torch.tensor([1.0]), 1.0).wrong == 0
    logarithm = pointwise.expect("log2", (tiny,), ())
    for got, wrong in ((float(tiny.double().log2()), 0), (float("-inf"), 0), (-100.0, 1)):
        assert judging.judge(logarithm, torch.tensor([got]), 1.0).wrong == wrong


def test_the_whole_of_a_half_type_is_tried_and_a_half_keeps_its_denormals() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        tried = values.single(dtype).view(torch.int16)
        assert len({*tried.tolist()}) == 1 << 16
    assert judging.is_denormal(torch.tensor([1e-7], dtype=torch.float16)).tolist() == [False]
    assert judging.is_denormal(torch.tensor([1e-40], dtype=torch.bfloat16)).tolist() == [True]


def test_the_worst_and_the_range_of_wrong_inputs_are_kept() -> None:
    value = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    got = torch.tensor([1.0, 2.1, 300.0, 4.0])
    result = judging.judge(Expected((value,), value), got, 1.0)
    assert result.worst is not None
    assert (result.worst.inputs, result.ranges) == (("3",), ("2 to 3",))


def test_the_share_of_usual_inputs_is_told(machine: KernelMachine) -> None:
    body = "  %m = fmul float %x, %x\n  %c = fcmp olt float %x, 0.0\n  %r = select i1 %c, float 0.0, float %m"
    name = "sqr_dense_float_float"
    kernel = machine.kernel(machine.compile(made.unary(name, body), name))
    usual = pointwise.Driver().judge(kernel_names.parse(name), kernel).usual
    assert usual is not None
    assert 0.45 < usual < 0.55


def test_a_race_that_one_order_of_the_threads_shows_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = SimpleNamespace(fusible=False, flushed=False, together=True, backwards=False)
    monkeypatch.setattr(drive.Drivers, "_kernel", lambda *_: kernel)
    monkeypatch.setattr(
        drive.Drivers, "_judge", lambda _, ran, __: judging.Judged(compared=4, wrong=int(ran.backwards), ulps=0.0)
    )
    function: Any = SimpleNamespace(name="sum_reduction_float_float")
    task = Task(family="reductions", operation="sum_reduction", kernels=())
    outcome = drive.Drivers().outcome(cast(KernelMachine, None), function, task)
    assert (outcome.verdict, outcome.wrong) == ("wrong", 1)
    assert "another order of the threads" in outcome.reason


@pytest.mark.parametrize("dtype", values.FLOATS)
def test_what_the_drivers_draw_has_ties_zeros_and_denormals(dtype: torch.dtype) -> None:
    drawn = values.random((400,), dtype, 1)
    zeros = drawn[drawn == 0]
    assert zeros.signbit().any()
    assert not zeros.signbit().all()
    assert len(set(drawn.tolist())) < len(drawn)
    assert ((drawn != 0) & (drawn.abs() < torch.finfo(dtype).smallest_normal)).any()


def kept_library(folder: Path, release: str, bodies: dict[str, str]) -> library.Library:
    """A library of unary kernels, kept as a release's."""
    kept = folder / "kernels" / "libraries"
    kept.mkdir(parents=True, exist_ok=True)
    data = made.metallib({name: made.unary(name, body) for name, body in bodies.items()})
    (kept / f"metal_basic-{release}.metallib").write_bytes(data)
    return library.read(release, folder / "wheels")


def test_a_run_that_is_ended_keeps_what_it_has_and_goes_on_from_there(tmp_path: Path) -> None:
    chosen = kept_library(
        tmp_path, "2.99.0", {"neg_dense_float_float": "  %r = fneg float %x", "sqr_dense_float_float": _SQUARE}
    )
    wheels, lines = tmp_path / "wheels", list[str]()
    # A shell's background jobs ignore it, and so would their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(line: str) -> None:
        lines.append(line)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(2)

    first = kernel_child.run(chosen, jobs=1, cache=wheels, progress=interrupt)
    assert (first.ended, first.lacking, len(first.outcomes)) == ("Ctrl-C", 1, 1)
    (kept,) = (tmp_path / "kernels" / "unfinished").iterdir()
    with kept.open("ab") as file:
        file.write(b'{"kernel": "half a line')
    told: list[str] = []
    second = kernel_child.run(chosen, jobs=1, cache=wheels, progress=told.append)
    assert (second.ended, second.lacking, len(second.outcomes), len(told)) == ("", 0, 2, 1)
    assert first.outcomes[0] in second.outcomes
    assert not kept.exists()


def test_a_run_ends_at_its_time_limit(tmp_path: Path) -> None:
    chosen = kept_library(tmp_path, "2.99.0", {"sqr_dense_float_float": _SQUARE})
    result = kernel_child.run(chosen, jobs=1, timeout=0.01, cache=tmp_path / "wheels")
    # Its process may begin while the run is ended.
    assert (result.ended, result.lacking + len(result.outcomes)) == (kernel_child.TIME_LIMIT, 1)


def test_a_search_for_the_first_release_that_is_ended_keeps_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_library(tmp_path, "2.98.0", {"sqr_dense_float_float": _SQUARE})
    newest = kept_library(tmp_path, "2.99.0", {"sqr_dense_float_float": "  %r = fadd float %x, %x"})
    run_all = kernel_child._run_all

    def in_no_time_where_older(release: library.Library, *given: Any) -> str:
        arguments = list(given)
        arguments[3] = given[3] if release is newest else 0.0
        return str(run_all(release, *arguments))

    monkeypatch.setattr(kernel_child, "_run_all", in_no_time_where_older)
    result = kernel_child.run(newest, jobs=1, cache=tmp_path / "wheels")
    assert (result.ended, result.lacking, len(result.outcomes)) == (kernel_child.TIME_LIMIT, 0, 1)
    assert result.outcomes[0].since == ""
    assert len(list((tmp_path / "kernels" / "unfinished").iterdir())) == 1


def test_the_first_release_with_the_wrong_kernel_is_told(tmp_path: Path) -> None:
    wrong, other = "  %r = fadd float %x, %x", "  %r = fsub float %x, %x"
    for release, body in (("2.96.0", wrong), ("2.97.0", _SQUARE), ("2.98.0", other)):
        kept_library(tmp_path, release, {"sqr_dense_float_float": body})
    newest = kept_library(tmp_path, "2.99.0", {"sqr_dense_float_float": wrong, "neg_dense_float_float": wrong})
    result = kernel_child.run(newest, jobs=1, cache=tmp_path / "wheels")
    assert {outcome.kernel: outcome.since for outcome in result.outcomes} == {
        "sqr_dense_float_float": "2.98.0",
        "neg_dense_float_float": "2.99.0",
    }


@pytest.mark.parametrize(
    ("source", "value", "written"),
    [
        (torch.int16, torch.bool, torch.bool),
        (torch.bool, torch.float64, torch.float32),
        (torch.float16, torch.float64, torch.float16),
        (torch.float16, torch.complex128, torch.complex32),
        (torch.int64, torch.int64, torch.int64),
    ],
)
def test_a_casting_kernel_that_names_one_dtype_writes_what_its_functor_gives(
    source: torch.dtype, value: torch.dtype, written: torch.dtype
) -> None:
    assert pointwise._functors_dtype(source, value) == written


def test_numbers_take_the_type_of_the_argument_that_they_are_bound_to() -> None:
    sizes = air.KernelParameter(kind="air.buffer", name="sizes", type="ulong2", size=16)
    flag = air.KernelParameter(kind="air.buffer", name="flag", type="bool", size=1)
    bound_numbers = launch.Launch({"sizes": (2, 3), "flag": True, "unheard": 1}, 1, {})
    bound = [launch._memory(argument, bound_numbers) for argument in (sizes, flag)]
    assert [(tensor.dtype, tensor.tolist()) for tensor in bound if tensor is not None] == [
        (torch.int64, [2, 3]),
        (torch.bool, True),
    ]


def test_a_result_that_nothing_is_bound_to_gets_memory_that_no_value_was_written_to() -> None:
    out = air.KernelParameter(kind="air.buffer", name="out", type="half", size=2)
    unbound = launch.Launch({}, 1, {"out": (torch.zeros(2), torch.zeros(2, 3, dtype=torch.float64))})
    memory = launch._memory(out, unbound)
    assert memory is not None
    assert (memory.dtype, tuple(memory.shape), bool((memory != 0).all())) == (torch.float16, (2, 3), True)
