"""An emulated Mac for the length of a file's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import opcheck
from opcheck.device.emulator.session import Emulation


@pytest.fixture(scope="module")
def mac() -> Iterator[Emulation]:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        yield run
