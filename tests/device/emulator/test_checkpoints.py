"""torch.utils.checkpoint keeps the state of no generator of mps (torch/utils/checkpoint.py, 1.13 to 2.15)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import opcheck


class Checkpointed(torch.nn.Module):
    """Dropout in a checkpoint, or beside it."""

    def __init__(self, *, inside: bool, reentrant: bool = False, preserves: bool = True) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.inside = inside
        self.flags: dict[str, Any] = {"use_reentrant": reentrant, "preserve_rng_state": preserves}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def block(x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x, 0.5) if self.inside else x.relu()

        return F.dropout(checkpoint(block, self.linear(x), **self.flags), 0.5)


_CHECKPOINTS = [
    ({"inside": True}, True),
    ({"inside": True, "reentrant": True}, True),
    ({"inside": False}, False),
    # The program asks for that, and gets it on every device.
    ({"inside": True, "preserves": False}, False),
]


@pytest.mark.parametrize(("flags", "again"), _CHECKPOINTS)
@pytest.mark.parametrize("release", ["2.0", "2.13"])
def test_what_a_checkpoint_draws_again_on_mps_is_a_known_defect(
    release: str, flags: dict[str, bool], again: bool
) -> None:
    model = Checkpointed(**flags)
    x = torch.ones(2, 4, requires_grad=True)
    with opcheck.emulate(torch=release, macos="15") as run:
        Checkpointed(**flags).to("mps")(x.to("mps")).sum().backward()
    report = opcheck.audit(model, (x,), torch=release, macos="15", mode="train")
    for groups in (run.report.groups, report.groups):
        found = {name for group in groups for name in group.verdict.advisories}
        assert ("checkpoint-draws-again" in found) is again
