"""What a PyTorch model does on Apple's GPU, told from any machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.device.emulator.session import emulate
    from opcheck.model.records import Report
    from opcheck.project.api import audit

__all__ = ["Report", "__version__", "audit", "emulate"]

__version__ = "0.1.0"

#: name -> module that has it.  ``emulate`` takes as long as importing torch does.
_LAZY = {
    "audit": "opcheck.project.api",
    "emulate": "opcheck.device.emulator.session",
    "Report": "opcheck.model.records",
}


def __getattr__(name: str) -> Any:
    """The names of the Python API, imported when they are asked for."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    message = f"module 'opcheck' has no attribute {name!r}"
    raise AttributeError(message)
