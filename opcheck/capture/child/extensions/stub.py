"""Skips a library's compiled part that cannot load; vision.py and audio.py share it."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Collection


def folder(package: str) -> Path | None:
    """Return where a package is installed, which is not imported for it; None where it is not."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def loads(extension: Path) -> bool:
    """Return whether this machine can load a shared library."""
    try:
        ctypes.CDLL(str(extension))
    except OSError:
        return False
    return True


def skip_loading(extensions: Collection[Path]) -> None:
    """Let a library believe that its operators exist: loading these files raises nothing."""
    load = torch.ops.load_library

    def load_library(path: Any) -> None:
        if Path(path) not in extensions:
            load(path)

    torch.ops.load_library = load_library  # type: ignore[method-assign]
