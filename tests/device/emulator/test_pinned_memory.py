"""A Mac pins memory from torch 2.14 on; before, a program that asks for pinned memory raises there."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import opcheck
from opcheck.simulator.errors import NotSimulatedError

_OF_CUDA = "Could not run 'aten::_pin_memory' with arguments from the 'CUDA' backend"
_OF_GPU = 'Attempted to set the storage of a tensor on device "cpu" to a storage on different device "mps:0"'


@pytest.mark.parametrize(
    ("release", "kind", "text"),
    [
        ("2.4", NotImplementedError, _OF_CUDA),  # github.com/karpathy/nanoGPT/pull/120
        ("2.5", RuntimeError, _OF_GPU),  # github.com/facebookresearch/sam2/pull/495
        ("2.13", RuntimeError, _OF_GPU),
    ],
)
def test_no_tensor_is_pinned_before_2_14(release: str, kind: type[Exception], text: str) -> None:
    with opcheck.emulate(release, "15") as run, pytest.raises(kind, match=text):
        torch.ones(2).pin_memory().to("mps", non_blocking=True)
    (group,) = run.report.groups
    assert (group.op, group.verdict.status) == ("aten::_pin_memory", "unsupported")
    assert any(finding.rule == "OC101" for finding in run.report.findings)


def test_from_2_14_a_tensor_is_pinned_and_stays_on_the_cpu() -> None:
    with opcheck.emulate("2.14", "15"):
        pageable = torch.ones(2)
        pinned = pageable.pin_memory()
        assert pinned.device.type == "cpu"
        assert pinned.data_ptr() != pageable.data_ptr()
        assert [x.is_pinned() for x in (pinned, pinned[1:], pinned + 1, pageable)] == [True, True, False, False]
        assert pinned.pin_memory() is pinned
        assert torch.empty(2, pin_memory=True).is_pinned()
        assert pinned.to("mps").tolist() == [1, 1]
        assert torch.empty(2, pin_memory=True).device.type == "cpu"
        assert torch.zeros_like(torch.ones(2, device="mps"), device="cpu", pin_memory=True).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("release", "kind", "text"),
    [
        ("2.2", RuntimeError, "Pinned memory requires CUDA"),
        ("2.6", RuntimeError, "Need to provide pin_memory allocator to use pin memory"),
        ("2.13", NotSimulatedError, "in the GPU's memory before torch 2.14"),  # pytorch issue 181374
    ],
)
def test_no_new_tensor_is_pinned_before_2_14(release: str, kind: type[Exception], text: str) -> None:
    with opcheck.emulate(release, "15"), pytest.raises(kind, match=text):
        torch.empty(2, pin_memory=True)


@pytest.mark.parametrize("release", ["2.9", "2.15"])
def test_what_is_on_mps_is_not_pinned(release: str) -> None:
    with opcheck.emulate(release, "15"):
        x = torch.ones(2, device="mps", dtype=torch.float16)
        with pytest.raises(RuntimeError, match="cannot pin 'MPSHalfType' only dense CPU tensors can be pinned"):
            x.pin_memory()
        for make in (
            lambda: torch.empty(2, device="mps", pin_memory=True),
            lambda: torch.ones_like(x, pin_memory=True),
        ):
            with pytest.raises(RuntimeError, match=r"^Only dense CPU tensors can be pinned$"):
                make()


def test_events_without_a_clock_measure_nothing() -> None:
    with opcheck.emulate("2.13", "15"):
        timed, plain = torch.mps.Event(enable_timing=True), torch.mps.Event()
        timed.record()
        plain.record()
        assert timed.elapsed_time(timed) == 0
        for first, last in ((timed, plain), (plain, timed)):
            with pytest.raises(RuntimeError, match=r"^Events were not created with argument 'enable_timing=True'$"):
                first.elapsed_time(last)


@pytest.mark.parametrize(("release", "warns"), [("2.6", 0), ("2.7", 1)])
def test_a_loader_mentions_pinned_memory_since_2_7(release: str, warns: int) -> None:
    with opcheck.emulate(torch=release, macos="15"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (batch,) = DataLoader(TensorDataset(torch.ones(4)), batch_size=4, pin_memory=True)
    assert [str(each.message).startswith("'pin_memory' argument is set as true") for each in caught] == [True] * warns
    assert not batch[0].is_pinned()
