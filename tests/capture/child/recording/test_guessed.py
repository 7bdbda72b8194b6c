"""Guesses: which of them choose a way, and which the program only checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.simulator.mac import recorded

BIG = torch.zeros(200, 200)


def kinds(run: Callable[[torch.Tensor], object]) -> list[tuple[str, str]]:
    return [(problem.op, problem.kind) for problem in recorded(run, BIG).problems()]


def asserts(x: torch.Tensor) -> None:
    assert x.isfinite().all()


def raises(x: torch.Tensor) -> None:
    if (x > 3).any():
        message = "too large"
        raise ValueError(message)


def raises_on_one_line(x: torch.Tensor) -> None:
    if not (x > 3).all():
        raise ValueError(x.shape)


def torch_asserts(x: torch.Tensor) -> None:
    torch._assert((x > 3).all(), "too small")


def validates(x: torch.Tensor) -> None:
    torch.distributions.Normal(x, x.exp(), validate_args=True)


def inverts(x: torch.Tensor) -> None:
    window = torch.hann_window(400, device=x.device)
    spectrum = torch.stft(x.reshape(-1), 400, window=window, return_complex=True)
    torch.istft(spectrum, 400, window=window)


class StopCheck:
    """As transformers ends its loop of generation."""

    def __call__(self, x: torch.Tensor) -> bool:
        """Return whether all sequences have ended."""
        return bool(x.max() == 0)


def ends_a_loop(x: torch.Tensor) -> torch.Tensor:
    stops = StopCheck()
    for _ in range(3):
        if stops(x):
            break
        x = x + 1
    return x


def ends_an_older_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        this_peer_finished = bool(x.max() == 0)
        if this_peer_finished:
            break
        x = x + 1
    return x


@pytest.mark.parametrize(
    "run", [asserts, ends_a_loop, ends_an_older_loop, inverts, raises, raises_on_one_line, torch_asserts, validates]
)
def test_what_only_checks_values_is_said_so(run: Callable[[torch.Tensor], object]) -> None:
    result = kinds(run)
    assert result
    assert {kind for _, kind in result} == {"value_check"}


def chooses(x: torch.Tensor) -> torch.Tensor:
    if (x > 3).all():
        return x + 1
    return x


def chooses_between_two(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 3:
        x = x + 1
        raise_it = True
    else:
        raise_it = False
    return x + int(raise_it)


def contains(x: torch.Tensor) -> torch.Tensor:
    # torch/_tensor.py asks, for the line that has the ``in``.
    return x + 1 if 3 in x else x


def selects(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


@pytest.mark.parametrize("run", [chooses, chooses_between_two, contains, selects])
def test_what_chooses_a_way_or_a_shape_is_a_guess(run: Callable[[torch.Tensor], object]) -> None:
    assert {kind for _, kind in kinds(run)} == {"guess"}


def test_the_problem_says_what_was_answered_and_how_often() -> None:
    def loops(x: torch.Tensor) -> None:
        for _ in range(3):
            chooses(x)

    (problem,) = recorded(loops, BIG).problems()
    assert (problem.op, problem.count) == ("aten::_local_scalar_dense", 3)
    assert problem.answered == "True"
    assert "answered True (3 times); the way and the shapes" in problem.message
    assert problem.location is not None
    assert problem.location.text == "if (x > 3).all():"
