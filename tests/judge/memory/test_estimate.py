"""What the estimate makes of a made trace: columns, peaks, holders, Macs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opcheck.common.vocabulary import MemoryOrigin
from opcheck.judge.memory.estimate import advice, estimate, find_asked_mac, ratios_of, smallest
from opcheck.judge.memory.replay import highest, list_taken, sweep
from opcheck.model.records import Lifetime, Memory, OpCall, Trace
from tests.judge.memory.live import peaks_as_recorded
from tests.made import call, make_target, make_trace, spec

GIB = 1 << 30
PHASES = ("forward", "forward", "backward", "backward", "optimizer", "optimizer")


def life(first: int, freed: int | None, nbytes: int = GIB, kind: MemoryOrigin = "result") -> Lifetime:
    return Lifetime(storage=first + 100, nbytes=nbytes, first=first, freed=freed, kind=kind)


def step(*lives: Lifetime, **others: object) -> Trace:
    """A training step of two calls in each phase."""
    calls = [call(f"aten::op{i}", i, phase=phase) for i, phase in enumerate(PHASES)]
    return make_trace(*calls, lifetimes=lives, mode="train", **others)


def made(trace: Trace, macos: str = "15.0", torch: str = "2.13", mac: int = 0) -> Memory:
    memory = estimate(trace, make_target(torch, macos), asked=mac)
    assert memory is not None
    return memory


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (life(0, None, kind="parameter"), "parameters"),
        (life(0, None, kind="buffer"), "buffers"),
        (life(0, 3, kind="input"), "inputs"),
        (life(0, 3), "activations"),
        (life(0, None), "activations"),
        (life(2, 3), "activations"),  # used up within backward
        (life(2, 4), "activations"),
        (life(2, 5), "gradients"),
        (life(3, None), "gradients"),
        (life(4, 5), "activations"),  # a temporary of the step
        (life(4, None), "optimizer"),
    ],
)
def test_what_a_piece_is_follows_from_its_life(one: Lifetime, kind: str) -> None:
    assert [piece.kind for piece in list_taken(step(one))] == [kind]


def test_a_second_backward_has_gradients_of_its_own() -> None:
    calls = [call("aten::mm", phase=phase) for phase in (*PHASES, *PHASES)]
    lives = (life(2, 8), life(8, 12))
    trace = make_trace(*calls, lifetimes=lives)
    assert [piece.kind for piece in list_taken(trace)] == ["gradients", "gradients"]


def test_peaks_are_of_what_lives_at_once() -> None:
    trace = step(life(0, 1), life(0, 3), life(1, 3), life(3, None))
    assert peaks_as_recorded(trace) == {"forward": 2 * GIB, "backward": 2 * GIB, "optimizer": GIB}


@pytest.mark.parametrize(("torch", "gib"), [("2.13", 2), ("2.14", 1)])
def test_the_optimizers_state_takes_buffers_that_activations_left(torch: str, gib: int) -> None:
    mib = 1 << 20
    activations = [Lifetime(storage=number, nbytes=33 * mib, first=0, freed=3, kind="result") for number in range(30)]
    state = [Lifetime(storage=100 + number, nbytes=2 * mib, first=4, freed=None, kind="result") for number in range(10)]
    memory = made(step(life(0, None, mib, "parameter"), *activations, *state), torch=torch)
    assert memory.allocation is not None
    # 2 MiB of state in a buffer of 33 MiB: the second step needs ten new ones.
    assert memory.allocation.allocated // GIB == gib


def test_the_softmax_of_attention_has_temporaries() -> None:
    scores = spec(2, shape=(8, GIB // 32))
    calls = [call("aten::_safe_softmax", outputs=(scores,)), call("aten::mm")]
    lives = (Lifetime(storage=2, nbytes=scores.nbytes, first=0, freed=None, kind="result"),)
    allocation = made(make_trace(*calls, lifetimes=lives)).allocation
    assert allocation is not None
    # The scores, the softmax before its rows of -inf are replaced, and which those are.
    assert allocation.live == 2 * scores.nbytes + scores.nbytes // 4


def test_the_optimizers_state_is_there_from_the_second_step_on() -> None:
    weight = life(0, None, kind="parameter")
    memory = made(step(weight, life(0, 3), life(4, None), life(4, None)))
    totals = {peak.phase: (peak.total, peak.held["optimizer"]) for peak in memory.peaks}
    assert totals == {
        "move": (GIB, 0),
        "forward": (4 * GIB, 2 * GIB),
        "backward": (4 * GIB, 2 * GIB),
        "optimizer": (3 * GIB, 2 * GIB),
    }
    assert any("second step" in note for note in memory.notes)


def test_columns_add_up() -> None:
    memory = made(step(life(0, None, 7, "buffer"), life(0, 5, 11), life(2, None, 13)))
    for peak in memory.peaks:
        assert sum(peak.held.values()) == peak.total


def test_the_lines_that_hold_most_come_first_and_layers_are_one() -> None:
    calls = [call("aten::mm", 3, module=f"layer.{i}") for i in range(3)]
    lives = (life(0, None, 5, "parameter"), *(life(i, None, 10) for i in range(3)))
    memory = made(make_trace(*calls, lifetimes=lives))
    first, second = memory.holders
    assert (first.nbytes, first.tensors, first.op, first.place.module) == (30, 3, "aten::mm", "layer.*")
    assert (second.kind, second.op) == ("parameters", "")


def test_three_states_and_the_line() -> None:
    memory = made(step(life(0, None, 7 * GIB, "parameter"), *(life(1, 3, GIB) for _ in range(4))))
    states = {mac.memory: mac.state for mac in memory.macs}
    assert [states.pop(size) for size in (8, 16)] == ["raises", "pressure"]
    assert set(states.values()) == {"fits"}
    assert smallest(memory, "fits") == memory.macs[2]
    # One parameter of 7 GiB is more than a buffer of a Mac of 8 GB may take: before any call.
    assert memory.macs[0].prints == "Invalid buffer size: 7.00 GiB"
    assert memory.macs[0].place is None


def test_the_place_is_the_first_call_above_the_limit() -> None:
    memory = made(step(*(life(i, None, 2 * GIB) for i in (0, 0, 1, 1, 2, 2))))
    place = memory.macs[0].place
    assert place is not None
    assert place.location is not None
    assert place.location.line == 2
    assert "max allowed: 9.07 GiB" in memory.macs[0].prints


@pytest.mark.parametrize(("torch", "unit"), [("1.13", "9.07 GB"), ("2.7", "GB"), ("2.8", "GiB")])
def test_the_unit_is_that_of_the_release(torch: str, unit: str) -> None:
    memory = made(step(*(life(0, None, 2 * GIB) for _ in range(6))), torch=torch)
    assert f"{unit})" in memory.macs[0].prints


def test_the_macos_decides_the_working_set() -> None:
    trace = step(life(0, None, 11 * GIB))
    assert made(trace, "15.0").macs[3].state == made(trace, "26.0").macs[3].state == "fits"
    lives = [life(0, None, 3 * GIB) for _ in range(4)]
    assert made(step(*lives[:3], life(0, None, 5 * GIB // 2)), "15.0").macs[1].state == "pressure"
    assert made(step(*lives[:3], life(0, None, 5 * GIB // 2)), "26.0").macs[1].state == "fits"


def test_the_mac_that_is_asked_about() -> None:
    trace = step(life(0, None))
    assert find_asked_mac(made(trace)) is None
    for size, known in ((4, 8), (8, 8), (20, 18), (36, 36), (200, 192)):
        mac = find_asked_mac(made(trace, mac=size))
        assert mac is not None
        assert mac.memory == known


def test_nothing_is_estimated_without_lifetimes() -> None:
    assert estimate(make_trace(call("aten::mm")), make_target()) is None


def test_a_run_that_broke_off_says_so() -> None:
    assert "broke off" in made(step(life(0, None), complete=False)).notes[0]
    assert "broke off" not in "".join(made(step(life(0, None))).notes)


def test_the_watermarks_are_those_of_the_environment() -> None:
    assert ratios_of(step()) == (1.7, 1.4)


@pytest.mark.parametrize(("calls", "waits", "noted"), [(8, False, True), (8, True, False), (1, False, False)])
def test_a_bound_of_convolutions_above_the_limit_is_noted(calls: int, *, waits: bool, noted: bool) -> None:
    # 27 * 64 * 4 bytes for each of 2**19 positions: 3.4 GiB.
    inputs = (spec(1, shape=(1, 64, 8, 256, 256)), spec(3, shape=(64, 64, 3, 3, 3), argument="weight"))
    outputs = (spec(2, shape=(1, 64, 8, 256, 256)),)
    one = call("aten::convolution", inputs=inputs, outputs=outputs, waits=waits)
    trace = make_trace(*[one] * calls, lifetimes=(life(0, None),))
    memory = estimate(trace, make_target("2.13", "15.0"), asked=16, routes=["graph"] * calls)
    assert memory is not None
    notes = [each for each in memory.notes if each.startswith("convolutions could pass the limit")]
    assert bool(notes) is noted


# -- What would lower the peak, said only where it is worth saying --


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
    (line,) = [line for line in advice_lines(step(*lives, inputs=("5x3:float32", "m=5:int64"))) if "batch" in line]
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
    (line,) = [line for line in advice_lines(make_trace(*calls, lifetimes=lives)) if "inference_mode" in line]
    assert line.startswith("2.0 MiB are held at the peak that no later call reads")


def test_temporaries_of_the_optimizer() -> None:
    lines = advice_lines(step(life(4, 5, 8 * MIB), inputs=("4x3:float32",)))
    assert lines == ["8.0 MiB are temporaries of the optimizer's step"]


def _makes(storage: int, dtype: str) -> OpCall:
    return call("aten::mm", inputs=(), outputs=(spec(storage, dtype=dtype),))
