"""An emulated Mac for the length of a file's tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import opcheck
from opcheck.device.emulator.child.session import Emulation
from opcheck.simulator.dispatch import dispatcher


@pytest.fixture(scope="module")
def mac() -> Iterator[Emulation]:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        yield run


@pytest.fixture
def one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the numbers of mps from the CPU's generator, so that dropout masks are those of the CPU."""
    monkeypatch.setattr(dispatcher, "draw_on_mps", lambda _generator: contextlib.nullcontext())
