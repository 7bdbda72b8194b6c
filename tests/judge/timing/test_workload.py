"""The work of a pass, a step or a token, from the calls of a run."""

from __future__ import annotations

import pytest

from opcheck.capture.request import AS_PIPELINE
from opcheck.common.vocabulary import RouteKind
from opcheck.judge.callgraph import RoutedCall
from opcheck.judge.timing.workload import workloads
from opcheck.model.records import OpCall, Trace, Verdict, Workload
from tests.made import call, spec

NATIVE = Verdict(status="native", because="registered")
ON_CPU = Verdict(status="fallback", kind="always", because="registered")
RAISES = Verdict(status="unsupported", because="registered")


def work_of(
    *calls: OpCall, trace: Trace | None = None, verdict: Verdict = NATIVE, route: RouteKind = "metal"
) -> tuple[Workload, ...]:
    return workloads(trace or Trace(model="m"), [RoutedCall(each, verdict, route) for each in calls])


def test_equal_calls_are_one_row() -> None:
    (work,) = work_of(call("aten::mm", flops=8), call("aten::mm", flops=8), call("aten::add.Tensor"))
    assert [(row.family, row.flops, row.nbytes, row.count) for row in work.rows] == [
        ("matrix", 8, 48, 2),
        ("memory", 0, 48, 1),
    ]


@pytest.mark.parametrize(
    ("op", "flops", "family"),
    [
        ("aten::convolution", 8, "convolution"),
        ("aten::convolution_backward", 8, "convolution"),
        ("aten::linear", 8, "matrix"),
        ("aten::relu", 0, "memory"),
        ("aten::embedding", 0, "rows"),
        ("aten::index.Tensor", 0, "index"),
        ("aten::index_select", 0, "rows"),
        ("aten::linalg_solve", 0, "none"),
        ("aten::_linalg_svd", 0, "none"),
        ("aten::_lstm_mps", 8, "matrix"),
        ("mylib::op", 0, "none"),
    ],
)
def test_an_operator_belongs_to_a_family(op: str, flops: int, family: str) -> None:
    (work,) = work_of(call(op, flops=flops))
    assert work.rows[0].family == family


def test_a_view_is_no_row() -> None:
    view = call("aten::view", inputs=(spec(1, storage=7),), outputs=(spec(2, storage=7),))
    (work,) = work_of(view, call("aten::relu"))
    assert (work.views, len(work.rows)) == (1, 1)


def test_an_embedding_reads_the_rows_that_it_returns() -> None:
    table, index, result = (spec(1, shape=(100_000, 8)), spec(2, dtype="int64", shape=(3,)), spec(3, shape=(3, 8)))
    (work,) = work_of(call("aten::embedding", inputs=(table, index), outputs=(result,)))
    assert work.rows[0].nbytes == 3 * 8 + 2 * 3 * 8 * 4


def test_what_is_expanded_or_passed_twice_is_read_once() -> None:
    wide = spec(1, shape=(1000, 8), stride=(0, 1))
    (work,) = work_of(call("aten::add.Tensor", inputs=(wide, wide), outputs=(spec(2, shape=(1,)),)))
    assert work.rows[0].nbytes == 8 * 4 + 4


def test_a_weight_of_four_bits_has_a_formula() -> None:
    source, weight, result = (
        spec(1, dtype="bfloat16", shape=(1, 64)),
        spec(2, dtype="uint8", shape=(32, 32)),
        spec(3, dtype="bfloat16", shape=(1, 32)),
    )
    packed = call("aten::_weight_int4pack_mm", inputs=(source, weight), outputs=(result,))
    (work,) = work_of(packed)
    assert (work.rows[0].family, work.rows[0].flops) == ("matrix", 2 * 64 * 32)
    assert work.rows[0].nbytes == 128 + 1024 + 64


def test_a_fallback_copies_and_waits() -> None:
    (work,) = work_of(call("aten::relu", 3), verdict=ON_CPU, route="cpu")
    assert (work.waits, work.waits_at, work.copies) == (1, "model.py:3", 2)
    assert work.copied > 0


def test_a_call_that_raises_is_left_out() -> None:
    (work,) = work_of(call("aten::relu"), verdict=RAISES, route="unknown")
    assert (work.raising, work.rows) == (1, ())


def test_a_run_that_broke_off_has_no_work() -> None:
    assert work_of(call("aten::relu"), trace=Trace(model="m", complete=False)) == ()


def test_a_training_step_has_no_state_of_the_first_step() -> None:
    trace = Trace(model="m", mode="train")
    (work,) = work_of(
        call("aten::relu"),
        call("aten::zeros_like", phase="optimizer"),
        call("aten::mul_.Tensor", phase="optimizer"),
        trace=trace,
    )
    assert (work.unit, sum(row.count for row in work.rows)) == ("step", 2)


def _pass(length: int) -> list[OpCall]:
    """Return the calls of a pass over ``length`` tokens: an embedding, two layers, the head."""
    size = spec(1, shape=(length, 8))
    return [
        call("aten::relu", 1, inputs=(size,), module="embed"),
        call("aten::relu", 2, inputs=(size,), module="layers.0"),
        call("aten::relu", 2, inputs=(size,), module="layers.1"),
        call("aten::relu", 2, inputs=(size,), module="layers.1"),
        call("aten::relu", 3, inputs=(size,), module="head"),
    ]


def test_generate_is_a_token_and_the_prompt() -> None:
    trace = Trace(model="m", called=("generate(max_new_tokens=3, do_sample=True)",))
    token, prompt = work_of(*_pass(9), *_pass(1), *_pass(1), trace=trace)
    assert (token.unit, sum(row.count for row in token.rows)) == ("token", 5)
    assert (prompt.unit, prompt.covers) == ("pass", "the prompt")
    assert token.rows[0].nbytes < prompt.rows[0].nbytes


def test_forward_and_generate_are_a_token_and_a_pass() -> None:
    trace = Trace(model="m", called=("forward", "generate(max_new_tokens=2)"))
    token, forward = work_of(*_pass(9), *_pass(9), *_pass(1), trace=trace)
    assert (token.unit, forward.unit, forward.covers) == ("token", "pass", "a forward pass")
    assert token.rows[0].nbytes < forward.rows[0].nbytes
    assert sum(row.count for row in forward.rows) == 5


@pytest.mark.parametrize("called", ["generate(max_new_tokens=7)", "generate(max_length=20)"])
def test_another_number_of_passes_is_found_by_the_longest_loop(called: str) -> None:
    token, _ = work_of(*_pass(9), *_pass(1), *_pass(1), trace=Trace(model="m", called=(called,)))
    assert (token.unit, sum(row.count for row in token.rows)) == ("token", 5)


def test_a_single_token_is_one_pass() -> None:
    trace = Trace(model="m", called=("generate(max_new_tokens=1)",))
    (work,) = work_of(*_pass(4), trace=trace)
    assert (work.unit, sum(row.count for row in work.rows)) == ("pass", 5)


def test_a_pipeline_is_a_step_and_the_rest() -> None:
    trace = Trace(model="m", inputs_note=AS_PIPELINE)
    text, decode = call("aten::mm", 8, module="text"), call("aten::mm", 9, module="vae")
    step, rest = work_of(text, *_pass(4), *_pass(4), decode, trace=trace)
    assert (step.unit, sum(row.count for row in step.rows)) == ("step", 5)
    assert (rest.unit, sum(row.count for row in rest.rows)) == ("pass", 2)


def test_modules_that_are_called_twice_are_no_pipeline() -> None:
    (work,) = work_of(*_pass(4), *_pass(4))
    assert (work.unit, work.covers) == ("pass", "a forward pass")
