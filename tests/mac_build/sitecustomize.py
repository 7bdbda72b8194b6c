"""Makes torch look like a Mac's build as soon as it is imported, in every process that has this folder on its path."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# At once: the workers of pytest-xdist take their sys.path from a process that has not this folder on it.
mac_build = importlib.import_module("mac_build")


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as Python does, and changes it at the end of its import."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of torch, with a loader that goes on; None for any other module."""
        del path, target
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            mac_build.install(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if mac_build.VARIABLE in os.environ:
    sys.meta_path.insert(0, AfterTorch())
