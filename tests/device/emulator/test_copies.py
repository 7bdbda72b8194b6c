"""Numbers that a copy loses on a Mac are lost in a run, too."""

from __future__ import annotations

import pytest
import torch

import opcheck


@pytest.mark.parametrize(("release", "is_lost"), [("2.12", False), ("2.14", True)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_copy_into_float64_on_the_cpu_writes_nothing_in_2_14(dtype: torch.dtype, release: str, is_lost: bool) -> None:
    before, number = torch.full((2,), 7, dtype=dtype), 0 if is_lost else 3
    with opcheck.emulate(torch=release, macos="15"):
        x = torch.full((2,), 3.0, device="mps")
        cast, copied = x.to("cpu", dtype), before.clone().copy_(x)
        as_before = before.clone().copy_(torch.full((2,), 3.0))
        first_copied = x.cpu().to(dtype)
    assert cast.tolist() == [number] * 2
    assert copied.tolist() == [7 if is_lost else 3] * 2
    assert as_before.tolist() == first_copied.tolist() == [3] * 2
