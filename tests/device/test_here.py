"""A model audited, run and compared in one command; an emulated Mac stands for the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opcheck import cli
from opcheck.device import here
from opcheck.model.saved import read

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return torch.gcd(x, x + 2) + 1

def net():
    return Net(), torch.full((2, 8), 6)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")
@pytest.mark.parametrize("arguments", [["verify", "m.py:net", "--here"], ["audit", "m.py:net", "--verify"]])
def test_where_no_mac_is_it_is_refused(folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert not (folder / "opcheck-verify").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "m.py:net", "a.json", "--here"],
        ["verify", "m.py:net"],
        ["audit", "m.py:net", "--verify", "--torch", "2.9"],
    ],
)
def test_what_does_not_go_together_is_refused(
    folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(here.VARIABLE, "2.13/15")
    assert cli.invoke(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mac", "code", "written"),
    [
        ("2.13/15", 0, {"predicted.json", "observed.json", "share.md"}),
        ("2.13/15=2.9/15", 1, {"predicted.json", "observed.json", "share.md", "proposal.yaml"}),
    ],
)
def test_a_model_is_audited_run_and_compared(
    folder: Path,
    mac: str,
    code: int,
    written: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(here.VARIABLE, mac)
    assert cli.invoke(["verify", "m.py:net", "--here", "--fallback"]) == code
    out = capsys.readouterr().out
    assert f"{code} contradiction" in out
    assert ("m.py:7: predicted native, observed fallback" in out) == bool(code)
    kept = folder / "opcheck-verify"
    assert {path.name for path in kept.iterdir()} == written
    assert read(str(kept / "observed.json")).capture.tracer == "stand-in"
    assert "emulated" in (kept / "share.md").read_text(encoding="utf-8")
