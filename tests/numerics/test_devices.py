"""Names of devices that a comparison refuses."""

from __future__ import annotations

import pytest
import torch

from opcheck.common.errors import UsageError
from opcheck.numerics.child import installed_devices


@pytest.mark.parametrize("name", ["cpu:5", "cpu:-1", "mps:1", "cuda:9", "meta", "made-up", "", "privateuseone"])
def test_a_device_that_is_not_here_is_refused_in_three_lines(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        installed_devices.require(name)
    message, context, hint = str(caught.value).splitlines()
    assert repr(name) in message
    assert f"--device {name}" in context
    assert "cpu" in hint


@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_the_cpu_is_taken_by_its_name_and_its_first_index(name: str) -> None:
    assert installed_devices.require(name) == torch.device(name)
