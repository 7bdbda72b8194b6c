"""The observation of real runs, on a Mac's own GPU.  Not run anywhere yet: no Mac was at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mps

SCRIPT = """
import torch
x = torch.randn(4, 4, device="mps")
for _ in range(3):
    y = torch.linalg.eigvals(x)
z = torch.special.airy_ai(x)
print((x + 1).sum().item() == 0)
"""


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    if sys.platform != "darwin":
        pytest.skip("this is no Mac")
    import torch

    if not torch.backends.mps.is_available():
        pytest.skip("torch finds no MPS device")


def run(tmp_path: Path, *flags: str, script: str = SCRIPT) -> tuple[int, dict[str, Any]]:
    """``opcheck run`` in a process of its own: its exit code and its report."""
    program, report = tmp_path / "train.py", tmp_path / "report.json"
    program.write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "opcheck", "run", "-o", str(report), *flags, str(program)]
    code = subprocess.run(command, check=False, cwd=tmp_path).returncode
    return code, json.loads(report.read_text())


def test_every_fallback_is_seen(tmp_path: Path) -> None:
    code, report = run(tmp_path, "--fallback")
    assert code == 0
    fallbacks = {item["op"]: item for item in report["calls"] if item["status"] == "fallback"}
    eigvals = next(item for op, item in fallbacks.items() if "eig" in op)
    airy = next(item for op, item in fallbacks.items() if "airy" in op)
    assert (eigvals["count"], airy["count"]) == (3, 1)
    assert eigvals["locations"][0]["line"] == "train.py:5"
    assert {item["confidence"] for item in report["calls"]} == {"observed"}
    assert "bytes copied" in eigvals["because"]


def test_without_the_variable_it_raises(tmp_path: Path) -> None:
    code, report = run(tmp_path)
    assert code == 1
    assert report["headline"] == "fails"


def test_strict_ends_at_the_first(tmp_path: Path) -> None:
    code, report = run(tmp_path, "--fallback", "--strict")
    assert code == 1
    assert sum(item["count"] for item in report["calls"] if item["status"] == "fallback") == 1


def test_a_small_model_agrees_with_its_prediction(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())\n", encoding="utf-8"
    )
    script = 'import torch\nfrom net import net\nnet.to("mps").eval()\nwith torch.no_grad():\n    net(torch.randn(2, 8, device="mps"))\n'
    code, _ = run(tmp_path, script=script)
    assert code == 0
    command = [sys.executable, "-m", "opcheck", "verify", "net.py:net", "report.json"]
    verified = subprocess.run([*command, "--input", "2x8:float32"], check=False, cwd=tmp_path, capture_output=True)
    assert verified.returncode == 0, verified.stdout
