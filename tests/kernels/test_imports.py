"""Modules of the kernels make no tensor where they are imported: the default device may be one that is simulated."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

from opcheck import kernels

_PROGRAM = """
import importlib, sys, torch
from torch.utils._python_dispatch import TorchDispatchMode

class Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} runs at import")

with Refusing():
    for name in sys.argv[1:]:
        importlib.import_module(name)
"""


def test_no_tensor_is_made_at_import() -> None:
    pytest.importorskip("llvmlite")
    prefix = f"{kernels.__name__}."
    names = [module.name for module in pkgutil.walk_packages(kernels.__path__, prefix)]
    assert f"{prefix}drivers.sorts_and_histograms" in names
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
