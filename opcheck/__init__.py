"""What a PyTorch model does on Apple's GPU, told from any machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opcheck.device.emulator.session import emulate
    from opcheck.model.records import Report
    from opcheck.project.api import audit

    __version__: str

__all__ = ["Report", "__version__", "audit", "emulate"]

#: The module that has each name, and its name there. ``emulate`` takes as long as importing torch does.
_LAZY = {
    "audit": ("opcheck.project.api", "audit"),
    "emulate": ("opcheck.device.emulator.session", "emulate"),
    "Report": ("opcheck.model.records", "Report"),
    "__version__": ("opcheck.common.tool", "VERSION"),
}


def __getattr__(name: str) -> Any:
    """The names of the Python API, imported when they are asked for."""
    if name in _LAZY:
        module, attribute = _LAZY[name]
        return getattr(import_module(module), attribute)
    message = f"module 'opcheck' has no attribute {name!r}"
    raise AttributeError(message)
