"""Random calls of each operator: what the host side binds agrees with the CPU, in each release that has the kernels."""

from __future__ import annotations

import functools

import pytest

pytest.importorskip("llvmlite")

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels.host import bindings, release_kernels
from opcheck.kernels.host.host_call import UnboundError
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.numerics.kernels.child.wrong_results import find_wrong
from tests.kernels.host.random_calls import CALLS, drawn_call

pytestmark = pytest.mark.wheel
RELEASES = ("2.12.1", "2.13.0", "2.14.1", "2.15.0")
#: These had no kernel before 2.15.
NEW = {
    "constant_pad_nd", "flip", "_safe_softmax", "nll_loss_forward", "nll_loss_backward", "upsample_nearest2d_backward",
    "_upsample_nearest_exact2d_backward", "upsample_bilinear2d_backward",
    *(name for name in CALLS if name.startswith("reflection_pad")),
    *(name for name in CALLS if name.startswith(("replication_pad2d", "replication_pad3d"))),
}  # fmt: skip
SEEDS = range(6)


@functools.cache
def release(name: str) -> release_kernels.ReleaseKernels:
    machine = KernelMachine(default_cache().parent / "kernels", optimized=True)
    return release_kernels.of_release(name, machine)


@pytest.mark.parametrize("name", CALLS)
def test_random_calls_agree_with_the_cpu(name: str) -> None:
    agreed: set[str] = set()
    for torch_release in RELEASES:
        for seed in SEEDS:
            call = drawn_call(name, seed)
            try:
                bound = bindings.bind(call, release(torch_release))
            except UnboundError:
                continue
            bound.run()
            wrong, compared = find_wrong(call, bound)
            assert wrong is None, (torch_release, seed, bound.kernels, wrong)
            assert compared, (torch_release, seed)
            agreed.add(torch_release)
    assert "2.15.0" in agreed
    assert (len(agreed) == 1) == (name in NEW), agreed


def test_a_wrong_binding_is_found() -> None:
    call = drawn_call("gather", 1)
    turned = call._replace(arguments={**call.arguments, "self": call.arguments["self"] * 2 + 1})
    bound = bindings.bind(turned, release("2.15.0"))
    bound.run()
    assert find_wrong(call, bound)[0] is not None
