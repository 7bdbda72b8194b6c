"""A plan is used again by the next call of its form: nothing in it may depend on the numbers of the first."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

import torch

import opcheck
from opcheck.data.wheels.archive import default_cache
from opcheck.kernels.host import release_kernels
from opcheck.kernels.host.host_call import UnboundError
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.numerics.kernels.child.kernel_check import Plans
from opcheck.numerics.kernels.child.wrong_results import find_wrong
from opcheck.tracing.torch_private.trees import tensors
from tests.kernels.host.random_calls import CALLS, drawn_call

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def release() -> ReleaseKernels:
    machine = KernelMachine(default_cache().parent / "kernels", optimized=True)
    return release_kernels.of_release("2.15.0", machine)


@pytest.mark.parametrize("name", CALLS)
def test_a_plan_computes_other_numbers_of_the_same_form(name: str, release: ReleaseKernels) -> None:
    plans, computed = Plans(release), 0
    for seed in range(2):
        first, second = drawn_call(name, seed), drawn_call(name, seed)
        for operand in tensors(tuple(second.arguments.values())):
            if operand.is_floating_point() and operand.dim():
                operand.copy_(operand.roll(1, 0))
        right = second.func(**second.arguments)
        second = second._replace(outputs=tuple(tensors((right,))))
        try:
            plans.run(first)
        except UnboundError:
            continue
        bound = plans.run(second)._replace(again=None)
        assert find_wrong(second, bound)[0] is None, (seed, bound.kernels)
        computed += 1
    assert computed


def test_a_softmax_gets_zeros_in_its_own_masked_rows() -> None:
    scores = torch.linspace(-1, 1, 24).view(3, 8)
    with opcheck.emulate(torch="2.15", kernels="replace"):
        for row in (0, 2):
            masked = scores.index_fill(0, torch.tensor([row]), -torch.inf).to("mps")
            sums = torch.ops.aten._safe_softmax(masked, -1).sum(-1).cpu()
            assert sums.round(decimals=4).tolist() == [float(other != row) for other in range(3)]
