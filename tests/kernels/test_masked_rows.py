"""Attention over a query that a mask keeps from each key: in one pass, in two, and by blocks of queries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("llvmlite")

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import drivers, library
from opcheck.kernels.kernel_machine import Kernel, KernelMachine
from opcheck.kernels.launch import Launch, run
from opcheck.kernels.values import fill_untouched

pytestmark = pytest.mark.wheel

LOWEST = torch.finfo(torch.float32).min
RELEASES = ("2.13.0", "2.14.1", "2.15.0")
BY_BLOCKS = "prefill_attention_float32_bq32_bk32_bd64_wm4_wn1_hm1_dc0_maskfloat32"
TWO_PASSES = "sdpa_vector_2pass_1_float_64_64_maskfloat", "sdpa_vector_2pass_2_float_64"


@pytest.fixture(scope="module")
def machine() -> KernelMachine:
    return KernelMachine(default_cache().parent / "kernels")


def kernel_named(machine: KernelMachine, release: str, name: str) -> Kernel:
    return machine.kernel(machine.compile_cached(library.read(release).functions[name]))


def last_call(name: str, kernel: Kernel) -> Launch:
    """The last call of the kernel's family, with a mask that lets each query see each key."""
    *_, call = drivers.launches(name, kernel)
    mask = call.bound["mask"]
    mask.fill_(mask.dtype == torch.bool)
    return call


def on_the_cpu(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


def by_blocks(machine: KernelMachine, release: str, mask: float) -> tuple[Tensor, Tensor]:
    """What the kernel gives, and what the CPU does."""
    kernel = kernel_named(machine, release, BY_BLOCKS)
    call = last_call(BY_BLOCKS, kernel)
    bound = call.bound
    bound["mask"][:, :, 0] = mask
    return run(kernel, call)["O"], on_the_cpu(bound["Q"], bound["K"], bound["V"], bound["mask"])


def in_two_passes(machine: KernelMachine, release: str, mask: float) -> tuple[Tensor, Tensor]:
    """What the kernels give, one after the other, and what the CPU does."""
    kernels = [kernel_named(machine, release, name) for name in TWO_PASSES]
    first = last_call(TWO_PASSES[0], kernels[0])
    bound = first.bound
    bound["mask"][:, :, 0] = mask
    half = run(kernels[0], first)
    _, heads, queries, _ = bound["queries"].shape
    results = {"partials": half["out"], "sums": half["sums"], "maxs": half["maxs"]}
    results["out"] = fill_untouched(bound["queries"].shape, torch.float32)
    second = Launch(results, (heads * 1024, queries, 1), {}, group=(1024, 1, 1))
    return run(kernels[1], second)["out"], on_the_cpu(bound["queries"], bound["keys"], bound["values"], bound["mask"])


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("attend", "mask", "is_lost"),
    [
        (in_two_passes, LOWEST, True),
        (in_two_passes, -1e10, True),
        (in_two_passes, -1e8, False),
        (by_blocks, LOWEST, True),
        (by_blocks, -1e10, False),
    ],
)
def test_a_row_with_a_very_low_mask_becomes_zeros(
    machine: KernelMachine,
    release: str,
    attend: Callable[[KernelMachine, str, float], tuple[Tensor, Tensor]],
    mask: float,
    is_lost: bool,
) -> None:
    out, expected = attend(machine, release, mask)
    assert torch.allclose(out[:, :, 1:], expected[:, :, 1:], atol=1e-4, rtol=1e-3)
    assert (expected[:, :, 0] != 0).all()
    if is_lost:
        assert (out[:, :, 0] == 0).all()
    else:
        assert torch.allclose(out[:, :, 0], expected[:, :, 0], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("release", "name", "first"),
    [
        ("2.8.0", "sdpa_vector_float_64_64", torch.nan),
        ("2.9.1", "sdpa_vector_float_64_64", torch.nan),
        ("2.12.1", "sdpa_vector_float_64_64", torch.nan),
        ("2.13.0", "sdpa_vector_float_64_64_maskbool", 0.0),
    ],
)
def test_a_boolean_mask_that_blocks_a_row_gave_nan_in_one_pass(
    machine: KernelMachine, release: str, name: str, first: float
) -> None:
    kernel = kernel_named(machine, release, name)
    call = last_call(name, kernel)
    bound = call.bound
    bound["mask"][:, :, 0] = False
    out = run(kernel, call)["out"]
    expected = on_the_cpu(bound["queries"], bound["keys"], bound["values"], bound["mask"])
    assert (expected[:, :, 0] == 0).all()
    expected[:, :, 0] = first
    torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-3, equal_nan=True)


#: Kernels by their releases, where a NaN was dropped: up to 2.12 the name has no mask.
WITHOUT_MASK = {
    "2.8.0": "sdpa_vector_float_64_64",
    "2.12.1": "sdpa_vector_float_64_64",
    "2.13.0": "sdpa_vector_float_64_64_masknone",
    "2.14.1": "sdpa_vector_float_64_64_masknone",
}


@pytest.mark.parametrize("operand", ["queries", "keys"])
@pytest.mark.parametrize("release", WITHOUT_MASK)
def test_a_nan_is_dropped_in_one_release_alone(machine: KernelMachine, release: str, operand: str) -> None:
    name = WITHOUT_MASK[release]
    kernel = kernel_named(machine, release, name)
    call = next(iter(drivers.launches(name, kernel)))
    call.bound[operand].view(-1)[0] = torch.nan
    assert bool(run(kernel, call)["out"].isnan().any()) == (release != "2.13.0")


@pytest.mark.parametrize("release", RELEASES)
def test_blocks_of_queries_drop_a_nan_in_one_release_alone(machine: KernelMachine, release: str) -> None:
    name = BY_BLOCKS.replace("_hm1_", "_hm0_")
    kernel = kernel_named(machine, release, name)
    call = next(iter(drivers.launches(name, kernel)))
    call.bound["Q"].view(-1)[0] = torch.nan
    assert bool(run(kernel, call)["O"].isnan().any()) == (release != "2.13.0")
