"""``opcheck.audit(..., mac=..., time=...)`` estimates the time of an object's run."""

from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.common.errors import UsageError


def test_a_module_has_an_estimate() -> None:
    report = opcheck.audit(torch.nn.Linear(64, 64), torch.rand(8, 64), mac="M4 Pro")
    (estimate,) = report.time
    assert (estimate.mac, estimate.unit) == ("M4 Pro", "pass")
    assert 0 < estimate.low_seconds < estimate.high_seconds
    assert any("time are estimated" in each for each in report.not_checked)


def test_every_chip_has_one_and_without_a_mac_none_has() -> None:
    model, source = torch.nn.Linear(64, 64), torch.rand(8, 64)
    assert len(opcheck.audit(model, source, time=True).time) > 15
    assert opcheck.audit(model, source).time == ()


def test_a_chip_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UsageError, match="M9"):
        opcheck.audit(torch.nn.Linear(4, 4), torch.rand(4, 4), mac="M9")
