"""How far a compiled run is from the eager one."""

from __future__ import annotations

import math
import random

import pytest
import torch

from opcheck.features.compile.child.variants import ProgramCall, difference, once, place_program

X = torch.linspace(-1, 1, 64)


def test_within_a_few_times_the_eager_error_it_agrees() -> None:
    exact = [X.double()]
    eager = [X + 1e-6 * X]
    near = difference([X - 2e-6 * X], eager, exact, torch.float32)
    far = difference([X - 2e-5 * X], eager, exact, torch.float32)
    assert near is not None
    assert far is not None
    assert near.agrees
    assert not far.agrees


def test_nan_and_another_shape_never_agree_by_chance() -> None:
    broken = difference([X / 0 * 0], [X], [X.double()], torch.float32)
    assert broken is not None
    assert math.isnan(broken.compiled)
    assert not broken.agrees
    assert difference([X[:3]], [X], [X.double()], torch.float32) is None


def test_a_program_that_draws_others_in_float64_is_held_against_eager_and_still_caught() -> None:
    # CUDA's dropout: the CPU's draws the same in both.
    keep = torch.arange(64) % 2 == 0
    eager, exact = [X * keep], [(X * ~keep).double()]
    same = difference(eager, eager, exact, torch.float32, draws=True)
    wrong = difference([eager[0] + 0.01], eager, exact, torch.float32, draws=True)
    assert same is not None
    assert wrong is not None
    assert (same.agrees, same.eager) == (True, 0.0)
    assert not wrong.agrees


def test_where_eager_is_far_off_by_itself_so_may_the_compiled_program_be() -> None:
    # A gradient that cancels, in a convolution's TF32: no random numbers, and no digits either.
    exact = [X.double()]
    near = difference([X * 1.2], [X * 0.9], exact, torch.float32)
    far = difference([X * 2.0], [X * 0.9], exact, torch.float32)
    assert near is not None
    assert far is not None
    assert (near.agrees, far.agrees) == (True, False)


@pytest.mark.parametrize("training", [False, True])
def test_it_is_known_whether_a_program_draws(training: bool) -> None:
    drops = ProgramCall(torch.nn.Dropout(), (torch.ones(4),), {})
    assert once(drops, training=training).draws is training
    assert not once(ProgramCall(torch.nn.Linear(4, 4), (torch.ones(4),), {}), training=training).draws


def test_a_run_in_two_dtypes_is_near() -> None:
    program = ProgramCall(torch.nn.Linear(8, 64), (torch.ones(4, 8),), {})
    single = once(place_program(program, torch.float32, "cpu"), training=True)
    double = once(place_program(program, torch.float64, "cpu"), training=True)
    result = difference(single.gradients, single.gradients, double.gradients, torch.float32)
    assert result is not None
    assert result.compiled < 1e-5


def test_a_gradient_that_is_rounding_alone_is_not_compared() -> None:
    exact = [torch.ones(8, dtype=torch.float64), torch.full((8,), 1e-18, dtype=torch.float64)]
    eager = [torch.ones(8), torch.linspace(-1, 1, 8) * 1e-9]
    other = [torch.ones(8), torch.linspace(1, -1, 8) * 2e-9]
    for draws in (False, True):
        result = difference(other, eager, exact, torch.float32, draws=draws)
        assert result is not None
        assert result.agrees
    wrong = [torch.ones(8), torch.full((8,), 1e-3)]
    result = difference(wrong, eager, exact, torch.float32)
    assert result is not None
    assert not result.agrees


def test_each_run_draws_the_same_numbers_from_every_generator() -> None:
    class Draws(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * random.random() * torch.rand(())  # noqa: S311  (as a program draws)

    program = ProgramCall(Draws(), (X,), {})
    first, second = (once(program, training=False).outputs[0] for _ in range(2))
    assert torch.equal(first, second)
