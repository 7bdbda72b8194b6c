"""Nested tensors on mps: of the jagged layout alone (ATen/NestedTensorImpl.cpp)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import opcheck

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def parts(device: str) -> list[torch.Tensor]:
    return [torch.ones(2, device=device), torch.ones(3, device=device)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nested.nested_tensor(parts("cpu"), device="mps"),
        lambda: torch.nested.nested_tensor(parts("mps")),
        lambda: torch.nested.as_nested_tensor(parts("mps")),
        lambda: torch.nested.nested_tensor(parts("cpu")).to("mps"),
    ],
    ids=["device", "of tensors on mps", "as_nested_tensor", "to"],
)
def test_the_strided_layout_raises_as_on_a_mac(make: Callable[[], torch.Tensor]) -> None:
    with (
        opcheck.emulate("2.13", "15") as run,
        pytest.raises(RuntimeError, match="NestedTensorImpl storage must be either CUDA, CPU, XPU"),
    ):
        make()
    assert [finding.rule for finding in run.report.findings] == ["OC101"]


def test_the_jagged_layout_is_there() -> None:
    with opcheck.emulate("2.13", "15"):
        made = torch.nested.nested_tensor(parts("cpu"), device="mps", layout=torch.jagged)
        assert made.device.type == "mps"
        assert made.values().tolist() == [1] * 5
