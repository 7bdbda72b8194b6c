"""Values that nobody knows: the run goes on with a guess, the guess is told, and no loop on it is endless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opcheck.capture.child.recording import recorder as recorder_module
from opcheck.capture.child.recording.recorder import LoopsOnGuessError
from opcheck.simulator.dispatch.dispatcher import KEEP_ELEMENTS
from opcheck.simulator.dispatch.tensor import is_on_mps, to_mps
from opcheck.simulator.dispatch.unbacked_values import MOST_SELECTED, SAME_ANSWERS
from tests.simulator.mac import names, recorded

BIG = torch.zeros(200, 200)  # more elements than values are kept for
INTS = torch.zeros(40_000, dtype=torch.int64)
SMALL = torch.tensor([3.0, 0.0, 1.0])


def _shapes(run: Callable[..., Any], *inputs: torch.Tensor) -> tuple[list[tuple[int, ...]], str]:
    """The shapes of what ``run`` returns, and the guess that was told."""
    kept: list[Any] = []
    recorder = recorded(lambda *x: kept.append(run(*x)), *inputs)
    made = kept[0] if isinstance(kept[0], (tuple, list)) else (kept[0],)
    results = [problem.message for problem in recorder.problems() if problem.kind == "guess"]
    return [tuple(tensor.shape) for tensor in made], "; ".join(results)


@pytest.mark.parametrize(
    ("run", "shapes", "said"),
    [
        (torch.nonzero, [(40_000, 2)], "as if every element were selected"),
        (torch.argwhere, [(40_000, 2)], "as if every element were selected"),
        (lambda x: torch.where(x > 0), [(40_000,)] * 2, "as if every element were selected"),
        (lambda x: x[x > 0], [(40_000,)], "as if every element were selected"),
        (lambda x: x[x.sum(1) > 0], [(200, 200)], "as if every element were selected"),
        (lambda x: torch.masked_select(x, x[0] > 0), [(40_000,)], "every element"),
        (torch.unique, [(100,)], "as if 100 values were different"),
        (lambda x: torch.unique(x, dim=1), [(200, 200)], "as if all values were different"),
        (
            lambda x: torch.unique(x, return_inverse=True, return_counts=True),
            [(100,), (200, 200), (100,)],
            "as if 100 values were different",
        ),
        (torch.unique_consecutive, [(100,)], "as if 100 values were different"),
        (lambda x: torch.linalg.lstsq(x, x), [(200, 200), (0,), (), (200,)], "full rank"),
    ],
)
def test_a_selection_by_unknown_values(run: Callable[..., Any], shapes: list[tuple[int, ...]], said: str) -> None:
    result, message = _shapes(run, BIG)
    assert result == shapes
    assert said in message


@pytest.mark.parametrize(
    ("run", "shape", "said"),
    [
        (torch.bincount, (2,), "as if no value were above 1"),
        (lambda x: torch.bincount(x, minlength=7), (7,), "as if no value were above 6"),
        (torch.repeat_interleave, (40_000,), "as if each were repeated once"),
        (torch.nn.functional.one_hot, (40_000, 2), "answered 1"),
    ],
)
def test_unknown_counts(run: Callable[..., Any], shape: tuple[int, ...], said: str) -> None:
    result, message = _shapes(run, INTS)
    assert result == [shape]
    assert said in message


@pytest.mark.parametrize("release", ["1.13", "2.0"])
def test_how_often_each_is_repeated(release: str) -> None:
    # torch 1.13 registers the CPU fallback for the composite itself.
    def run(x: torch.Tensor, repeats: torch.Tensor, unknown: torch.Tensor) -> None:
        assert x.repeat_interleave(repeats, 0).shape == (5, 200)
        assert x[:2, :2].repeat_interleave(repeats, 1).shape == (2, 5)
        assert repeats.repeat_interleave(repeats).tolist() == [2, 2, 3, 3, 3]
        made = unknown.repeat_interleave(unknown)
        assert (made.shape, made.dtype) == ((40_000,), torch.int64)

    repeats = torch.tensor([2, 3])
    recorder = recorded(run, BIG[:2].expand(2, 200), repeats, INTS, release=release)
    (problem,) = recorder.problems()
    assert "as if each were repeated once" in problem.message


def test_what_a_known_mask_selects_of_unknown_values_is_no_guess() -> None:
    def run(x: torch.Tensor, mask: torch.Tensor) -> None:
        assert x[mask].shape == (2, 200)
        assert x[:, mask].shape == (200, 2)
        assert torch.masked_select(x[:, :200], mask).shape == (400,)

    mask = torch.zeros(200, dtype=torch.bool)
    mask[:2] = True
    assert recorded(run, BIG, mask).guesses == {}


def test_a_known_mask_of_tokens_is_known_at_the_width_of_their_vectors() -> None:
    def run(x: torch.Tensor, mask: torch.Tensor) -> None:
        wide = mask.unsqueeze(-1).expand_as(x)
        assert wide.numel() > KEEP_ELEMENTS
        assert x[wide].shape == (400,)

    mask = torch.zeros(200, dtype=torch.bool)
    mask[:2] = True
    assert recorded(run, BIG, mask).guesses == {}


def test_writing_by_an_unknown_mask() -> None:
    def run(x: torch.Tensor) -> None:
        x[x > 0] = 0.0
        x[x > 0] = x[x > 0] * 2
        assert x.shape == (200, 200)

    (problem, *_) = recorded(run, BIG).problems()
    assert problem.kind == "guess"
    assert problem.location is not None
    assert problem.location.text == "x[x > 0] = 0.0"


def test_a_selection_has_a_limit() -> None:
    result, outcome = _shapes(torch.nonzero, torch.zeros(2000, 1000))
    assert result == [(MOST_SELECTED, 2)]
    assert "as if 1,048,576 elements were selected" in outcome


def test_a_loop_over_what_is_selected_visits_each() -> None:
    def run(scores: torch.Tensor) -> None:
        hit = scores.sum(1)[:8].nonzero()
        assert [int(row) for row in hit] == list(range(8))

    recorder = recorded(run, BIG)
    assert [key[0] for key in recorder.guesses] == ["aten::nonzero"]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_loop_on_a_bool_ends(*, wanted: bool) -> None:
    def run(x: torch.Tensor) -> None:
        turns = 0
        while bool((x > 0).any()) is not wanted:
            x = x + 1
            turns += 1
        assert turns <= SAME_ANSWERS

    recorded(run, BIG)


def test_a_loop_on_a_number_ends() -> None:
    def run(x: torch.Tensor) -> None:
        while x.sum().item() > 0.5:
            x = x - 1
        while x.sum().item() < 100:
            x = x + 1
        while x.cpu().sum() < 1:
            x = x + 1

    (*_, last) = recorded(run, BIG).problems()
    assert last.message.startswith("Tensor.cpu requested values")
    assert f"answered zeros, then ones ({SAME_ANSWERS + 1} times)" in last.message


def test_a_loop_that_no_answer_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_GUESSES", 200)

    def run(x: torch.Tensor) -> None:
        while x.sum().item() < 1e6:
            x = x + 1

    with pytest.raises(LoopsOnGuessError, match=r"no answer ended that: 1.0, then 0.0, then 2.0"):
        recorded(run, BIG)


def test_a_line_in_many_modules_is_not_a_loop() -> None:
    class Gate(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> bool:
            return bool(x.any())

    answers: list[bool] = []
    gates = torch.nn.ModuleList([Gate() for _ in range(SAME_ANSWERS + 2)])

    def run(x: torch.Tensor, recorder: Any) -> None:
        with recorder.sites.follow_modules(gates):
            answers.extend(gate(x) for gate in gates)

    recorder = recorded(run, BIG, pass_recorder=True)
    assert not any(answers)
    (problem,) = recorder.problems()
    assert f"answered False ({SAME_ANSWERS + 2} times)" in problem.message


def test_a_drawn_value_ends_a_loop_as_a_real_run_does() -> None:
    def run(x: torch.Tensor) -> None:
        while torch.rand((), device=x.device).item() < 0.5:
            pass
        assert torch.nn.functional.dropout(x, 0.5).sum().item() >= 0

    assert recorded(run, SMALL).guesses == {}


# -- the truth about values survives views and writes ---------------------------------------------------------

_KNOWN: dict[str, Callable[[torch.Tensor], object]] = {
    "add": lambda x: x.add_(1),
    "row": lambda x: x[0].mul_(3),
    "column": lambda x: x[:, 1].zero_(),
    "transposed": lambda x: x.t().add_(torch.arange(6.0, device=x.device).view(2, 3)),
    "flat": lambda x: x.view(-1)[::2].neg_(),
    "index": lambda x: x.__setitem__(torch.tensor([0, 2], device=x.device), 5.0),
    "mask": lambda x: x.__setitem__(x > 2, 7.0),
    "fill": lambda x: x.fill_(2),
}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(_KNOWN)), max_size=6))
def test_writes_through_views_give_what_they_give_on_the_cpu(steps: list[str]) -> None:
    expected = torch.arange(6.0).view(3, 2)
    for step in steps:
        _KNOWN[step](expected)

    def run(x: torch.Tensor) -> None:
        for step in steps:
            _KNOWN[step](x)
        assert torch.equal(x.cpu(), expected)

    assert recorded(run, torch.arange(6.0).view(3, 2)).guesses == {}


_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "self": lambda x: x,
    "row": lambda x: x[0],
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:1, :1].expand(200, 200),
}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(_VIEWS)),
    st.sampled_from(sorted(_VIEWS)),
    st.lists(st.sampled_from(sorted(_KNOWN)), max_size=3),
)
def test_an_unknown_value_written_anywhere_makes_every_alias_unknown(written: str, read: str, steps: list[str]) -> None:
    def run(small: torch.Tensor, big: torch.Tensor) -> None:
        reader, target = _VIEWS[read](small), _VIEWS[written](small)
        target[..., 0] = big[..., 0][: target.shape[0]] if target.dim() > 1 else big[0, 0]
        for step in steps:
            _KNOWN[step](small)
        reader.flatten()[0].item()

    recorder = recorded(run, torch.ones(3, 2), BIG)
    assert "aten::_local_scalar_dense" in {key[0] for key in recorder.guesses}


def test_a_small_view_of_unknown_memory_is_unknown() -> None:
    moved = to_mps(BIG, keep=16)
    assert is_on_mps(moved)
    assert not moved._mps.memory.known
    assert [key[0] for key in recorded(lambda x: x[0, 0].item(), BIG).guesses] == ["aten::_local_scalar_dense"]


def test_a_selection_is_recorded_as_the_call_that_it_is() -> None:
    assert names(lambda x: x[x > 0], BIG) == ["gt.Scalar", "index.Tensor"]


def test_a_copy_into_a_tensor_of_the_cpu() -> None:
    def run(x: torch.Tensor) -> None:
        stop = torch.zeros((), dtype=torch.bool)
        turns = 0
        while not stop:
            stop.copy_(x.max() == 0, non_blocking=True)
            turns += 1
        assert turns == SAME_ANSWERS + 1

    (problem,) = recorded(run, BIG).problems()
    assert problem.message.startswith("Tensor.cpu requested values")


def test_guessed_counts_are_made_to_sum() -> None:
    counts = torch.zeros(3, 40_000, dtype=torch.int64)

    def split(x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.split(counts.sum(1).tolist())

    shapes, result = _shapes(split, torch.zeros(8, 9000), counts)
    assert shapes == [(3, 9000), (3, 9000), (2, 9000)]
    assert "as if the parts were equal" in result


def test_counts_that_fit_nothing_without_a_guess_raise() -> None:
    with pytest.raises(RuntimeError, match="sum exactly to 200"):
        recorded(lambda x: x.split([150, 60]), BIG)


def test_an_entry_that_a_guess_leads_past_the_end_is_the_last() -> None:
    def last_hit(x: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        return experts[(x > 0).sum(1).nonzero()[-1, 0]]

    shapes, result = _shapes(last_hit, torch.zeros(5, 40_000), torch.zeros(4, 7, 2000))
    assert shapes == [(7, 2000)]
    assert "as if the last entry were selected" in result


def test_an_entry_past_the_end_without_a_guess_raises() -> None:
    with pytest.raises(IndexError):
        recorded(lambda x, i: x[i], BIG, torch.tensor(200))


@pytest.mark.parametrize(
    ("joined", "read"),
    [
        (lambda unknown, known: unknown | known, True),
        (lambda unknown, known: known.logical_or(unknown), True),
        (lambda unknown, known: unknown & ~known, True),
        (lambda unknown, known: unknown.long() & ~known, True),
        (lambda unknown, known: unknown & known, False),
        (lambda unknown, known: unknown | ~known, False),
        (lambda unknown, known: unknown.long() | known, False),
    ],
)
def test_what_one_argument_decides_is_no_guess(joined: Callable[..., Any], read: bool) -> None:
    def run(x: torch.Tensor) -> None:
        known = torch.ones(3, dtype=torch.bool, device=x.device)
        values.append(bool(joined(x.sum() > 0, known).any()))

    values: list[bool] = []
    recorder = recorded(run, BIG)
    assert not recorder.guesses if read else recorder.guesses


def test_a_loop_with_a_limit_ends_there_whatever_the_values_are() -> None:
    def run(x: torch.Tensor) -> None:
        unfinished = torch.ones(2, dtype=torch.int64, device=x.device)
        for step in range(9):
            is_last = torch.full((2,), step == 3, device=x.device)
            unfinished = unfinished & ~(is_last | (x.sum() > 0))
            steps.append(step)
            if unfinished.max() == 0:
                return

    steps: list[int] = []
    recorded(run, BIG)
    assert len(steps) <= 4
