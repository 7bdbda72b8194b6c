"""What would lower the peak, said only where it is worth saying."""

from __future__ import annotations

from collections.abc import Sequence

from opcheck.judge.memory.advice import advice
from opcheck.judge.memory.allocations import highest, list_taken, sweep
from opcheck.model.records import Lifetime, OpCall, Trace
from tests.judge.memory.test_estimate import life, step
from tests.made import call, make_trace, spec

MIB = 1 << 20


def advice_lines(trace: Trace) -> list[str]:
    pieces = list_taken(trace)
    totals = [sum(at.values()) for at in sweep(pieces, len(trace.calls))]
    peak = highest(totals)
    return list(advice(trace, pieces, peak, totals[peak]))


def starts(lines: Sequence[str]) -> list[str]:
    return [line.partition(":")[0] for line in lines]


def test_a_batch_that_can_be_halved() -> None:
    lives = (life(0, 3, 8 * MIB), life(0, None, MIB, "parameter"))
    (line,) = [
        line
        for line in advice_lines(step(*lives, inputs=("5x3:float32", "m=5:int64")))
        if "batch" in line
    ]
    assert line.startswith("a batch of 2 instead of 5: about 4.8 MiB less")
    assert "batch" not in "".join(advice_lines(step(*lives, inputs=("1x3:float32",))))
    assert "batch" not in "".join(advice_lines(step(*lives, inputs=("4x3:float32", "2x3:float32"))))


def test_checkpointing_is_for_what_backward_waits_for() -> None:
    assert "torch.utils.checkpoint" in starts(advice_lines(step(life(0, 3, 8 * MIB))))
    assert "torch.utils.checkpoint" not in starts(advice_lines(step(life(0, 2, 8 * MIB))))


def test_autocast_halves_single_precision() -> None:
    calls = (_makes(1, "float32"), call("aten::mm", phase="backward"))
    lives = (Lifetime(storage=1, nbytes=8 * MIB, first=0, freed=2, kind="result"),)
    trained = make_trace(*calls, lifetimes=lives, mode="train")
    assert "--autocast bfloat16: up to 4.0 MiB less of activations" in advice_lines(trained)
    already = make_trace(*calls, lifetimes=lives, mode="train", autocast="bfloat16")
    assert "--autocast bfloat16" not in starts(advice_lines(already))


def test_half_precision_counts_parameters_and_results() -> None:
    lives = (
        Lifetime(storage=9, nbytes=6 * MIB, first=0, freed=None, kind="parameter"),
        Lifetime(storage=1, nbytes=2 * MIB, first=0, freed=None, kind="result"),
    )
    trace = make_trace(_makes(1, "float32"), lifetimes=lives)
    assert "--dtype float16: about 4.0 MiB less" in advice_lines(trace)
    half = make_trace(_makes(1, "float16"), lifetimes=lives, parameter_bytes=12)
    assert "--dtype float16" not in starts(advice_lines(half))


def test_what_nobody_reads_any_more() -> None:
    read = call("aten::mm", inputs=(spec(1),), outputs=(spec(3),))
    calls = (_makes(1, "float16"), read, _makes(4, "float16"))
    lives = tuple(
        Lifetime(storage=number, nbytes=MIB, first=first, freed=None, kind="result")
        for number, first in ((1, 0), (3, 1), (4, 2))
    )
    (line,) = [
        line
        for line in advice_lines(make_trace(*calls, lifetimes=lives))
        if "inference_mode" in line
    ]
    assert line.startswith("2.0 MiB are held at the peak that no later call reads")


def test_temporaries_of_the_optimizer() -> None:
    lines = advice_lines(step(life(4, 5, 8 * MIB), inputs=("4x3:float32",)))
    assert lines == ["8.0 MiB are temporaries of the optimizer's step"]


def _makes(storage: int, dtype: str) -> OpCall:
    return call("aten::mm", inputs=(), outputs=(spec(storage, dtype=dtype),))
