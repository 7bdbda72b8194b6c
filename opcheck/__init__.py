"""What a PyTorch model does on Apple's GPU, told from any machine."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``opcheck.emulate``, whose import takes as long as torch's."""
    if name == "emulate":
        return import_module("opcheck.emulator.session").emulate
    message = f"module 'opcheck' has no attribute {name!r}"
    raise AttributeError(message)
