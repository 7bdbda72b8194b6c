"""A pytest fixture: a test that asks for ``mps_emulated`` runs on an emulated Mac.

The target comes from the test's marker ``mps_target(torch=..., macos=..., fallback=...)``, else from the ini options
``mps_torch``, ``mps_macos`` and ``mps_fallback``, else it is the newest in the op lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_MARKER = "mps_target(torch=None, macos=None, fallback=False): the Mac that mps_emulated is"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The defaults of a project."""
    parser.addini("mps_torch", "torch release that the fixture mps_emulated follows", default="")
    parser.addini("mps_macos", "macOS of the fixture mps_emulated", default="")
    parser.addini("mps_fallback", "PYTORCH_ENABLE_MPS_FALLBACK=1 on it", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The marker, for --strict-markers."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def mps_emulated(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The emulated Mac that the test runs on; its ``report`` says what the calls so far did.

    The Mac's errors are raised in the test; its fallback warnings are warnings of the test.  See
    ``opcheck.emulate`` for what it raises.
    """
    from opcheck.emulator.session import emulate  # noqa: PLC0415  (torch: only for a test that asks)

    config = request.config
    marker = request.node.get_closest_marker("mps_target")
    asked = dict(marker.kwargs) if marker else {}
    with emulate(
        torch=asked.get("torch") or config.getini("mps_torch") or None,
        macos=asked.get("macos") or config.getini("mps_macos") or None,
        fallback=bool(asked.get("fallback", config.getini("mps_fallback"))),
        name=request.node.name,
    ) as run:
        yield run
