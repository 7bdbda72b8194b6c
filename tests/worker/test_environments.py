"""Environments of --exact: what is installed into them, once, and what is said where that cannot be."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opcheck.common.errors import CaptureError
from opcheck.worker import environments
from opcheck.worker.environments import Wanted

WANTED = Wanted(torch="2.9.1", libraries=("transformers==4.57.3",), before="2025-12-11")


class Installer:
    """Stands for uv and pip."""

    def __init__(self, fails: str = "") -> None:
        self.commands: list[list[str]] = []
        self.fails = fails

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        if "venv" in command:
            (Path(command[-1]) / "lib" / "python3" / "site-packages").mkdir(parents=True)
        failed = bool(self.fails) and self.fails in command
        return subprocess.CompletedProcess(command, int(failed), "", "no such host" * failed)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPCHECK_CACHE", str(tmp_path / "wheels"))
    monkeypatch.setattr(environments, "_uv", lambda: ["uv"])
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
def test_an_environment_is_made_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installer = Installer(fails="cpu")
    monkeypatch.setattr(subprocess, "run", installer)
    results: list[str] = []
    python = environments.interpreter(WANTED, results.append)
    assert Path(python).is_relative_to(cache / "environments" / WANTED.name)
    assert results == ["making an environment with torch 2.9.1, once"]
    (libraries,) = [line for line in installer.commands if "transformers==4.57.3" in line]
    assert libraries[libraries.index("--exclude-newer") + 1] == "2025-12-11"
    assert "torch==2.9.1" in libraries
    (seen,) = (cache / "environments" / WANTED.name).rglob("opcheck.pth")
    assert (Path(seen.read_text().strip()) / "opcheck" / "worker").is_dir()
    before = len(installer.commands)
    assert environments.interpreter(WANTED, results.append) == python
    assert len(installer.commands) == before


def test_without_a_network_it_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", Installer(fails="install"))
    with pytest.raises(CaptureError) as raised:
        environments.interpreter(WANTED)
    assert "torch 2.9.1" in raised.value.message
    assert "no such host" in raised.value.context
    assert "torch==2.9.1 'transformers==4.57.3'" in raised.value.hint
    assert not (cache / "environments" / WANTED.name).exists()


def test_a_process_that_makes_an_environment_is_waited_for(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = cache / WANTED.name
    seen: list[float] = []

    def wait(seconds: float) -> None:
        seen.append(seconds)
        holder.close()

    holder = contextlib.ExitStack()
    holder.enter_context(environments._lock(place))
    monkeypatch.setattr("opcheck.worker.environments.time.sleep", wait)
    with environments._lock(place):
        assert len(seen) == 1


# -- Without torch, or with one that is too old: three lines from what runs a model, answers from what does not --


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
    "arguments", [("op", "aten::linear"), ("history", "aten::linear"), ("explain", "OC101"), ("lists", "info")]
)
def test_what_runs_no_model_needs_no_torch(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = opcheck(tmp_path, HIDDEN, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_installed_torch_is_new_enough() -> None:
    environments.require()
