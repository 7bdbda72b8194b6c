"""The allocator of the emulated Mac: its figures, its limit, and buffers of many sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opcheck
from opcheck.data.environment import HIGH, LOW
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.visible.machine import WORKING_SET

MIB = 1 << 20


def _ones(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="mps")


def test_freed_memory_is_cached_until_it_is_emptied() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        small, large = torch.ones(10, device="mps"), _ones(20)
        assert torch.mps.current_allocated_memory() == 256 + 20 * MIB
        assert torch.mps.driver_allocated_memory() == (8 + 1024) * MIB
        del large
        assert torch.mps.current_allocated_memory() == 256
        assert torch.mps.driver_allocated_memory() == (8 + 1024) * MIB
        torch.mps.empty_cache()
        assert torch.mps.driver_allocated_memory() == 8 * MIB
        del small


def _by_variables(patch: pytest.MonkeyPatch) -> None:
    patch.setenv(HIGH, "0.01")
    patch.setenv(LOW, "0.01")


def _by_fraction(_: pytest.MonkeyPatch) -> None:
    torch.mps.set_per_process_memory_fraction(0.01)


@pytest.mark.parametrize("limit", [_by_variables, _by_fraction])
def test_above_the_limit_the_program_gets_the_error_of_the_mac(
    limit: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        limit(monkeypatch)
        kept = _ones(60)
        allowed = f"max allowed: {0.01 * WORKING_SET / MIB:.2f} MiB"
        with pytest.raises(RuntimeError, match=allowed) as caught:
            _ones(60)
        assert "Tried to allocate 60.00 MiB on shared pool" in str(caught.value)
        del kept


def _exceed_the_limit() -> None:
    torch.mps.set_per_process_memory_fraction(0.01)
    _kept = [_ones(60), _ones(60)]


def test_a_program_that_is_out_of_memory_fails() -> None:
    with pytest.raises(RuntimeError, match="out of memory"), opcheck.emulate(torch="2.13", macos="15") as run:
        _exceed_the_limit()
    assert run.report.headline == "fails"
    (finding,) = [each for each in run.report.findings if each.rule == "OC126"]
    assert "16 GB" in finding.hint


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(1 << 40, device="mps"),
        lambda: torch.zeros(1 << 34, device="mps"),
        lambda: torch.arange(1 << 33, device="mps"),
        lambda: torch.ones(1 << 20, 1, device="mps") + torch.ones(1, 1 << 20, device="mps"),
        lambda: torch.zeros(1).expand(1 << 40).to("mps"),
    ],
    ids=["empty", "zeros", "arange", "add", "to"],
)
def test_a_tensor_larger_than_a_buffer_is_refused(make: Callable[[], torch.Tensor]) -> None:
    with (
        pytest.raises(RuntimeError, match=r"^Invalid buffer size: \d+\.00 GiB$"),
        opcheck.emulate(torch="2.13", macos="15") as run,
    ):
        make()
    assert run.report.headline == "fails"


def test_a_view_takes_no_memory_however_large_it_is() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        assert torch.zeros(1, device="mps").expand(1 << 40).shape == (1 << 40,)


def test_a_size_that_overflows_is_unknown_because_mps_does_not_check_it() -> None:
    with (
        pytest.raises(NotSimulatedError, match="64 bits cannot count its bytes"),
        opcheck.emulate(torch="2.13", macos="15") as run,
    ):
        torch.empty(1 << 62, device="mps")
    assert run.report.headline == "could not tell"


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((1 << 61,), r"^Invalid buffer size: 8589934592\.00 GiB$"),
        ((1 << 40, 1 << 40), "^numel: integer multiplication overflow$"),
    ],
)
def test_a_size_in_bytes_that_overflows_wraps_around(sizes: tuple[int, ...], text: str) -> None:
    with opcheck.emulate(torch="2.13", macos="15"), pytest.raises(RuntimeError, match=text):
        torch.empty(sizes, device="mps")


def test_strides_are_checked_for_overflow_on_a_mac_too() -> None:
    with opcheck.emulate(torch="2.13", macos="15"), pytest.raises(RuntimeError, match=r"^Storage size .* and strides"):
        torch.empty_strided((2,), (-1,), device="mps")


def test_a_ratio_that_the_allocator_refuses_raises_at_the_first_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIGH, "0.8")
    with (
        opcheck.emulate(torch="2.13", macos="15"),
        pytest.raises(RuntimeError, match=r"^invalid low watermark ratio 1\.4$"),
    ):
        torch.ones(1, device="mps")


@pytest.mark.parametrize(("torch_release", "reported"), [("2.13", True), ("2.14", False)])
def test_buffers_of_many_sizes_are_reported_up_to_2_13(torch_release: str, *, reported: bool) -> None:
    with opcheck.emulate(torch=torch_release, macos="15") as session:
        # Each is more than 32 MiB smaller than those before it.
        for mib in range(40, 400, 40):
            _ones(mib)
    report = session.report
    kinds = [each.kind for each in report.memory.growth] if report.memory else []
    assert (kinds == ["buffers"]) is reported
    messages = [each.message for each in report.findings if each.rule == "OC132"]
    assert any("results of 9 sizes" in each for each in messages) is reported
