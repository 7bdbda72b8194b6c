"""The generators of the CPU and of mps are two streams (ATen/mps/MPSGeneratorImpl.mm)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("mac")


def ones() -> torch.Tensor:
    return torch.ones(2, 4, device="mps")


DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(4, device="mps"),
    "randn_like": lambda: torch.randn_like(ones()),
    "randint": lambda: torch.randint(0, 99, (4,), device="mps"),
    "randperm": lambda: torch.randperm(9, device="mps"),
    "multinomial": lambda: torch.multinomial(ones(), 2),
    "bernoulli_": lambda: ones().bernoulli_(0.5),
    "normal": lambda: torch.normal(ones(), ones()),
    "a layer's weights": lambda: nn.Linear(2, 2, device="mps").weight,
    "dropout": lambda: F.dropout(ones()),
    "a distribution": lambda: torch.distributions.Normal(ones(), ones()).sample(),
    "dropout between the layers": lambda: nn.LSTM(4, 4, 2, dropout=0.5).to("mps")(ones())[0],
}


@pytest.mark.parametrize("name", [name for name in DRAWS if name != "dropout between the layers"])
def test_a_draw_on_mps_leaves_the_cpus_generator_as_it_is(name: str) -> None:
    before = torch.get_rng_state()
    DRAWS[name]()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", DRAWS)
def test_equal_seeds_draw_equal_numbers_on_mps(name: str) -> None:
    torch.manual_seed(7)
    first = DRAWS[name]()
    torch.manual_seed(7)
    assert torch.equal(first, DRAWS[name]())


def test_equal_seeds_draw_other_numbers_on_mps_than_on_the_cpu() -> None:
    torch.manual_seed(0)
    assert not torch.equal(torch.rand(8), torch.rand(8, device="mps").cpu())


def test_the_seed_of_mps_is_not_that_of_the_cpu() -> None:
    torch.manual_seed(0)
    first, there = torch.rand(4), torch.rand(4, device="mps")
    torch.manual_seed(0)
    torch.mps.manual_seed(1)
    assert torch.equal(torch.rand(4), first)
    assert not torch.equal(torch.rand(4, device="mps"), there)
    torch.mps.manual_seed(0)
    assert torch.equal(torch.rand(4, device="mps"), there)


def test_a_generator_of_mps_draws_what_the_default_one_of_its_seed_draws() -> None:
    torch.mps.manual_seed(3)
    first, second = torch.rand(4, device="mps"), torch.rand(4, device="mps")
    generator = torch.Generator("mps").manual_seed(3)
    assert generator.initial_seed() == 3
    assert torch.equal(torch.rand(4, device="mps", generator=generator), first)
    assert torch.equal(torch.rand(4, device="mps", generator=generator), second)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda: torch.mps.set_rng_state(torch.get_rng_state()), "RNG state is wrong size"),
        (lambda: torch.set_rng_state(torch.mps.get_rng_state()), "of size 5056 but found"),
    ],
)
def test_the_state_of_one_device_is_refused_by_the_other(run: Callable[[], None], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        run()


def test_fork_rng_keeps_both_states() -> None:
    states = torch.get_rng_state(), torch.mps.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="mps"):
        torch.rand(2)
        torch.mps.manual_seed(99)
    # torch.mps has no device(): fork_rng reads the state of the default one.
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(torch.mps.get_rng_state(), states[1])


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(("device", "same"), [("cpu", True), ("mps", False)])
def test_a_checkpoint_draws_another_mask_on_mps(device: str, *, reentrant: bool, same: bool) -> None:
    """torch.mps has no ``_initialized``, so that torch/utils/checkpoint.py keeps no state of it (1.13 to 2.15)."""
    x = torch.ones(64, device=device, requires_grad=True)
    y = checkpoint(nn.Dropout(0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(y.detach(), x.grad) is same


@pytest.mark.parametrize(("fraction", "error"), [(2.5, ValueError), (-0.1, ValueError), (1, TypeError)])
def test_a_fraction_of_the_memory_is_a_float_from_0_to_2(fraction: float, error: type[Exception]) -> None:
    torch.mps.set_per_process_memory_fraction(0.5)
    with pytest.raises(error):
        torch.mps.set_per_process_memory_fraction(fraction)
