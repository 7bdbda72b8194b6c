"""A program that names mps runs on the CPU: its own code reads the name as that of the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opcheck.capture.child.loading.load import load
from opcheck.features.compile.child.try_plan import mps_read_as

HELPER = """
import torch
DEVICES = ("mps", "mps:0")
SCALE = torch.ones(2, device=DEVICES[1])
"""
PROGRAM = """
import torch
import {helper}

def scaled(x):
    \"\"\"mps is not a text of its own here.\"\"\"
    if x.device.type == "mps":
        x = x * 3
    return x.to(torch.device("mps")) * {helper}.SCALE
"""


@pytest.mark.parametrize("cached", [False, True])
def test_a_module_and_what_it_imports_read_mps_as_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, cached: bool
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    name = f"helper_{cached}".lower()
    (tmp_path / f"{name}.py").write_text(HELPER)
    file = tmp_path / f"program_{cached}.py".lower()
    file.write_text(PROGRAM.format(helper=name))
    if cached:
        import py_compile

        py_compile.compile(str(file))
    with mps_read_as("cpu"):
        program = load(f"{file}:scaled", real=True).model
    assert program(torch.ones(2)).tolist() == [3, 3]
    assert "mps is not" in str(program.__doc__)
    assert sys.modules[name].DEVICES == ("cpu", "cpu")
