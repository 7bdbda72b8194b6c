"""Steps of torch.optim as the target's release wrote them."""

from __future__ import annotations

import pytest
import torch

from tests.simulator.mac import names, recorded


def step(kind: str, release: str, **arguments: object) -> list[str]:
    def run(x: torch.Tensor) -> None:
        weight = torch.nn.Parameter(x)
        weight.grad = torch.ones_like(weight)
        getattr(torch.optim, kind)([weight], **arguments).step()

    return names(run, torch.ones(3), release=release)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax"])
def test_up_to_2_0_moments_are_a_product_and_a_sum(kind: str) -> None:
    older, newer = step(kind, "2.0"), step(kind, "2.1")
    assert "lerp_.Scalar" not in older
    assert newer.count("lerp_.Scalar") == 1
    assert older.count("mul_.Tensor") == newer.count("mul_.Tensor") + 1


def test_with_foreach_too() -> None:
    older = step("Adam", "2.0", foreach=True)
    assert not [name for name in older if "lerp" in name]
    assert "_foreach_add_.List" in older


def test_up_to_2_2_adamax_lays_both_side_by_side() -> None:
    assert {"cat", "amax.out"} <= set(step("Adamax", "2.2"))
    assert "maximum.out" in step("Adamax", "2.3")
    # Adam's own maximum is as it is today.
    assert "maximum.out" in step("Adam", "2.0", amsgrad=True)


@pytest.mark.parametrize("kind", ["Adam", "Adamax"])
def test_it_computes_the_same(kind: str) -> None:
    def stepped(release: str | None) -> torch.Tensor:
        kept: list[torch.Tensor] = []

        def run(x: torch.Tensor) -> None:
            weight = torch.nn.Parameter(x)
            optimizer = getattr(torch.optim, kind)([weight], lr=0.1)
            for factor in (1.0, -3.0):
                weight.grad = weight.detach() * factor
                optimizer.step()
            kept.append(weight.detach().cpu())

        start = torch.tensor([1.0, -2.0, 0.5])
        if release is None:
            run(start)
        else:
            recorded(run, start, release=release)
        return kept[0]

    torch.testing.assert_close(stepped("2.0"), stepped(None))


def test_a_program_s_own_lerp_is_its_own() -> None:
    called = names(lambda x: x.lerp_(x + 1, 0.5), torch.ones(3), release="2.0")
    assert called[-1] == "lerp_.Scalar"


def test_nor_is_one_that_an_optimizer_s_closure_makes_the_optimizer_s() -> None:
    def run(x: torch.Tensor) -> None:
        weight = torch.nn.Parameter(x)

        def closure() -> float:
            weight.detach().lerp_(x, 0.5)
            weight.grad = torch.ones_like(weight)
            return 1.0

        torch.optim.LBFGS([weight]).step(closure)

    assert "lerp_.Scalar" in names(run, torch.ones(3), release="2.0")


def test_a_default_device_does_not_hide_the_optimizer() -> None:
    def run(x: torch.Tensor) -> None:
        weight = torch.nn.Parameter(x)
        weight.grad = torch.ones_like(weight)
        with torch.device("mps"):
            torch.optim.Adam([weight]).step()

    assert "lerp_.Scalar" not in names(run, torch.ones(3), release="2.0")
