"""Small models are wrong only where statements say so; a run with kernels costs little more than one without."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("llvmlite")

import torch
from torch import nn

import opcheck
from opcheck.numerics.kernels.child.kernel_run import KernelsMode
from tests.numerics.kernels.small_models import MODELS, Transformer, train

pytestmark = pytest.mark.wheel
RELEASE = "2.15"
#: Models with a wrong result that a statement of the op lists has: exp(x) - 1 near zero (elu-near-zero).
DEFECTS = {"style": {"aten::elu"}, "graph": {"aten::elu"}}


@pytest.mark.parametrize("name", MODELS)
def test_only_the_defects_of_statements_are_wrong_in_a_model(name: str) -> None:
    with opcheck.emulate(torch=RELEASE, kernels="shadow") as run:
        train(name, "mps")
    assert run.numbers is not None
    assert run.numbers.calls.checked * 2 > run.numbers.calls.all
    assert {wrong.op for wrong in run.numbers.wrong} == DEFECTS.get(name, set())


def test_each_model_with_a_defect_is_in_the_table_of_at_least_twenty() -> None:
    assert len(MODELS) >= 20
    assert MODELS.keys() >= DEFECTS.keys()


def _language_model() -> None:
    torch.manual_seed(1)
    model = Transformer().to("mps")
    with torch.no_grad():
        model(torch.arange(64, device="mps")[None] * 7 % 1000)


@pytest.mark.slow
def test_a_small_gpt2_takes_less_than_half_a_minute() -> None:
    with opcheck.emulate(torch=RELEASE, kernels="shadow"):
        _language_model()
    start = time.process_time()
    with opcheck.emulate(torch=RELEASE, kernels="shadow") as run:
        _language_model()
    assert time.process_time() - start < 30
    assert run.numbers is not None
    assert run.numbers.calls.checked * 2 > run.numbers.calls.all
    assert not run.numbers.wrong


def _train_perceptron(kernels: KernelsMode) -> float:
    """The least seconds of the processor that ten steps take."""
    torch.manual_seed(0)
    with opcheck.emulate(torch=RELEASE, kernels=kernels):
        net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).to("mps")
        optimizer = torch.optim.AdamW(net.parameters())
        x = torch.randn(128, 64, device="mps")

        def steps() -> float:
            start = time.process_time()
            for _ in range(10):
                loss = net(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return time.process_time() - start

        steps()
        return min(steps() for _ in range(4))


@pytest.mark.slow
def test_a_training_loop_takes_at_most_three_times_as_long() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        ratios = [_train_perceptron("shadow") / _train_perceptron("") for _ in range(4)]
    finally:
        torch.set_num_threads(threads)
    # Another process may take the caches away: the best of four.
    assert min(ratios) <= 3, ratios
