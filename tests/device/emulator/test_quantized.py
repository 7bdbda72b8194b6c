"""Quantized tensors, which MPS has in no release."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import opcheck

pytestmark = pytest.mark.filterwarnings("ignore:.*other quantized tensor creation functions")


def _quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("make", "operator"),
    [
        (lambda: _quantized().to("mps"), "aten::empty_quantized"),
        (lambda: torch.empty_like(_quantized(), device="mps"), "aten::_empty_affine_quantized"),
        (lambda: torch.zeros(2, dtype=torch.qint8, device="mps"), "aten::empty.memory_format"),
    ],
    ids=["to", "empty_like", "zeros"],
)
@pytest.mark.parametrize("release", ["2.6", "2.13"])
def test_a_quantized_tensor_on_mps_is_refused_by_the_dispatcher(
    make: Callable[[], torch.Tensor], operator: str, release: str
) -> None:
    text = f"Could not run '{operator}' with arguments from the 'QuantizedMPS' backend."
    with (
        pytest.raises(NotImplementedError, match=re.escape(text)),
        opcheck.emulate(torch=release, macos="15", fallback=True) as run,
    ):
        make()
    assert run.report.headline == "fails"


def test_the_result_of_a_fallback_does_not_come_back_quantized() -> None:
    with (
        pytest.raises(RuntimeError, match="aten::empty_quantized"),
        opcheck.emulate(torch="2.13", macos="15", fallback=True) as run,
    ):
        torch.quantize_per_tensor(torch.ones(4, device="mps"), 0.1, 0, torch.qint8)
    assert run.report.headline == "fails"


def test_a_dequantized_tensor_moves() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        assert _quantized().dequantize().to("mps").is_mps
