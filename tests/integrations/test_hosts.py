"""The same answers on hosts that cannot copy a process, limit memory or set timers: Linux takes their ways here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opcheck.capture.repository import is_repository

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
    def forward(self, x):
        return torch.special.airy_ai(self.a(x)).sum()

def net():
    return Net(), torch.ones(2, 8)
"""
ENDS = """
import os, time

class Ends(nn.Module):
    def forward(self, x):
        os._exit(3)

class Hangs(nn.Module):
    def forward(self, x):
        while True:
            time.sleep(0.1)

def ends():
    return Ends(), torch.ones(2)

def hangs():
    return Hangs(), torch.ones(2)
"""
#: A file name of Windows is one name on Linux: drive letter, colon and backslashes are characters of it.
FILE = "C:\\models\\m.py"


def opcheck(folder: Path, system: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", *arguments, "-f", "json"],
        cwd=folder,
        env={**os.environ, "OPCHECK_TEST_SYSTEM": system, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=False,
    )
    assert done.stdout, done.stderr.decode("cp1252", "replace")
    return {"code": done.returncode, **_without_times(json.loads(done.stdout))}


def _without_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_times(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_times(item) for key, item in value.items() if key != "seconds"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it compares the others with Linux")
@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("audit", f"{FILE}:net", "--mode", "train", "--no-cache", "--torch", "2.13"),
        ("upgrade", f"{FILE}:net", "--torch", "2.9"),
        ("gate", f"{FILE}:net", "--no-cache"),
        ("compile", f"{FILE}:net", "--torch", "2.13", "--backend", "aot_eager", "--dtype", "float32"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_another_host_gives_the_same_answer(system: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(MODEL, encoding="utf-8")
    expected, answer = (opcheck(tmp_path, host, *arguments) for host in ("linux", system))
    assert answer == expected


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it takes the ways of Windows on Linux")
def test_a_sweep_runs_without_copies_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"{MODEL}{ENDS}", encoding="utf-8")
    models = ("m.py:net", "m.py:ends", "m.py:hangs")
    flags = ("--torch", "2.13", "--mode", "inference", "--timeout", "5", "--jobs", "1")
    for arguments in (("sweep", *models, *flags), ("sweep", "report", "sweep")):
        done = subprocess.run(
            [sys.executable, "-m", "opcheck", *arguments],
            cwd=tmp_path,
            env={**os.environ, "OPCHECK_TEST_SYSTEM": "win32"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "| 0 | 0 | 1 | 2 | 0 |" in done.stdout  # one verdict, two without one
    assert "exited with code 3" in done.stdout
    assert "not done after 5 s" in done.stdout


@pytest.mark.parametrize("name", ["C:\\x\\m.py:net", "C:/x/m.py:net", "..\\m.py:net", "C:\\x\\model.pt2", "D:\\m.py"])
def test_a_path_of_windows_is_no_name_on_a_hub(name: str) -> None:
    assert not is_repository(name)
