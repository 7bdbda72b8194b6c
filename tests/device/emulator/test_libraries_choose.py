"""Libraries that look for a Mac's GPU find it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.device.emulator.test_programs import SCRIPTS, run


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not here")
@pytest.mark.parametrize("accelerator", ["mps", "auto"])
def test_lightning_trains_on_the_gpu_of_a_mac(tmp_path: Path, accelerator: str) -> None:
    ended = run(tmp_path, str(SCRIPTS / "lightning_mps.py"), accelerator)
    assert ended.out.splitlines()[-1] == "MPSAccelerator mps:0"
    assert ended.report["headline"] == "runs natively"


def test_accelerate_trains_on_the_gpu_of_a_mac(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from accelerate import Accelerator\nprint(Accelerator().device)\n")
    assert run(tmp_path, str(script)).out.splitlines()[-1] == "mps"
