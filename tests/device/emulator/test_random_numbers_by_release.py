"""The state of mps's generator by release."""

from __future__ import annotations

import pytest
import torch

import opcheck


@pytest.mark.parametrize(("release", "bytes_", "goes_on"), [("2.4", 36, False), ("2.5", 44, True)])
def test_a_state_keeps_how_far_it_has_come_since_2_5(release: str, bytes_: int, *, goes_on: bool) -> None:
    """github.com/pytorch/pytorch/issues/130613: the stream began again at the seed."""
    with opcheck.emulate(torch=release, macos="15"):
        torch.mps.manual_seed(1)
        first = torch.rand(2, device="mps")
        state = torch.mps.get_rng_state()
        second = torch.rand(2, device="mps")
        torch.mps.set_rng_state(state)
        after = torch.rand(2, device="mps")
        assert state.numel() == bytes_
        assert torch.equal(after, second if goes_on else first)
