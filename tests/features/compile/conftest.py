"""The tests compile in this process what opcheck compiles in a child."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opcheck.simulator.real_device import hide_device


@pytest.fixture(autouse=True)
def _without_a_device() -> Iterator[None]:
    """The child compiles as on a machine without MPS (compiler/run.py), which matters on a Mac."""
    with hide_device():
        yield
