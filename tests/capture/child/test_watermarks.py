"""A capture keeps the watermarks that its environment and its program set."""

from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.common.errors import InputError
from opcheck.data.environment import HIGH, LOW
from opcheck.model.records import MacFit, Memory

GIB = 1 << 30


def _mac_of_16_gb(memory: Memory | None) -> MacFit:
    assert memory is not None
    return next(mac for mac in memory.macs if mac.memory == 16)


def _large(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(4 * GIB, dtype=torch.uint8, device=x.device)[:1] + x


def _limited(x: torch.Tensor) -> torch.Tensor:
    torch.mps.set_per_process_memory_fraction(0.25)
    return _large(x)


def test_the_fraction_of_the_program_is_the_limit() -> None:
    mac = _mac_of_16_gb(opcheck.audit(_limited, torch.ones(1), memory=16).memory)
    assert mac.limit == int(0.25 * mac.working_set)
    assert mac.state == "raises"
    assert _mac_of_16_gb(opcheck.audit(_large, torch.ones(1), memory=16).memory).state == "fits"


def test_the_variables_of_the_environment_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIGH, "0.3")
    monkeypatch.setenv(LOW, "0.2")
    mac = _mac_of_16_gb(opcheck.audit(_large, torch.ones(1), memory=16).memory)
    assert mac.limit == int(0.3 * mac.working_set)
    assert "max allowed: 3." in mac.prints
    monkeypatch.setenv(HIGH, "0")
    mac = _mac_of_16_gb(opcheck.audit(_large, torch.ones(1), memory=16).memory)
    assert (mac.limit, mac.state) == (0, "fits")


def test_an_invalid_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIGH, "0.8")
    with pytest.raises(InputError, match=r"invalid low watermark ratio 1\.4"):
        opcheck.audit(_large, torch.ones(1))
