"""Without torch, or with one that is too old: three lines from what runs a model, answers from what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.worker import installed

HIDDEN = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
BROKEN = "raise ImportError('libcudart.so.13: cannot open shared object file')"
OLD = "__version__ = '2.7.1+cu126'"


def opcheck(place: Path, torch: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where ``import torch`` finds this instead."""
    (place / "torch.py").write_text(torch, encoding="utf-8")
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "opcheck", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize(
    ("torch", "what", "hint"),
    [
        (HIDDEN, "torch is not installed: a model cannot be run", "need no torch"),
        (BROKEN, "the installed torch cannot be imported: libcudart.so.13", "opcheck[torch]"),
        (OLD, "the installed torch 2.7.1+cu126 is too old", "--torch still chooses"),
    ],
)
def test_an_audit_says_so_in_three_lines(tmp_path: Path, torch: str, what: str, hint: str) -> None:
    done = opcheck(tmp_path, torch, "audit", "-q", "timm:resnet50")
    assert (done.returncode, done.stdout) == (3, "")
    result, context, advice = done.stderr.splitlines()
    assert what in result
    assert sys.executable in context
    assert hint in advice


def test_a_program_is_not_run_either(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('ran')", encoding="utf-8")
    done = opcheck(tmp_path, HIDDEN, "run", str(program))
    assert (done.returncode, done.stdout) == (3, "")
    assert "torch is not installed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("op", "aten::linear"), ("history", "aten::linear"), ("explain", "OC101"), ("lists", "info")],
)
def test_what_runs_no_model_needs_no_torch(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = opcheck(tmp_path, HIDDEN, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_installed_torch_is_new_enough() -> None:
    installed.require()
