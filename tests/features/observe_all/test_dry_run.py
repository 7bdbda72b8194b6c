"""The whole command on an emulated Mac that contradicts the predictions in 20 ways: it finds these and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opcheck.device.observation_store import FILE, read_evidence
from tests.features.observe_all import planted

ROOT = Path(__file__).parents[3]


def observe_all(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opcheck", "observe-all", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OPCHECK_TEST_MAC": planted.MAC} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def found(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "observed.json").read_text())
    return content


@pytest.mark.slow
def test_a_dry_run_finds_what_is_planted_and_nothing_besides(tmp_path: Path) -> None:
    lists = planted.planted_lists(tmp_path)
    for name, text in planted.PROGRAMS.items():
        (tmp_path / name).write_text(text)
    chosen = [
        word
        for flag, names in (
            ("--model", planted.MODELS),
            ("--op", planted.OPS),
            ("--kernel", planted.KERNELS),
            ("--program", planted.PROGRAMS),
        )
        for name in names
        for word in (flag, name)
    ]
    done = observe_all(
        tmp_path, "evidence", *chosen, OPCHECK_TEST_LISTS=str(lists), OPCHECK_TEST_WRONG=",".join(planted.WRONG)
    )
    assert done.returncode == 1, done.stderr
    assert observe_all(tmp_path, "into", "--merge", "evidence").returncode == 1
    first = (tmp_path / "into" / "observed.json").read_bytes()
    seen = {(each["op"], each["predicted"], each["observed"]) for each in found(tmp_path / "into")["contradictions"]}
    assert seen == planted.CONTRADICTIONS
    assert len(seen) == 20
    assert found(tmp_path / "into")["failed"] == []
    assert observe_all(tmp_path, "into", "--merge", "evidence").returncode == 1
    assert (tmp_path / "into" / "observed.json").read_bytes() == first


@pytest.mark.slow
def test_a_run_that_ended_goes_on(tmp_path: Path) -> None:
    words = ("--only", "models", "--model", "torch.nn:Linear", "--model", "torch.nn:Embedding")
    # Its time is up after a first step.
    assert observe_all(tmp_path, "evidence", *words, "--minutes", "0.01").returncode == 3
    part = read_evidence(tmp_path / "evidence")
    assert (len(part.steps), part.complete) == (1, False)
    done = observe_all(tmp_path, "evidence", *words)
    assert done.returncode == 0, done.stderr
    whole = read_evidence(tmp_path / "evidence")
    assert (len(whole.steps), whole.complete, whole.run) == (2, True, part.run)
    assert whole.steps[0] == part.steps[0]
    assert whole.host.gpu == "emulated"


def test_without_a_mac_it_is_three_lines(tmp_path: Path) -> None:
    if sys.platform == "darwin":
        pytest.skip("this is a Mac")
    done = observe_all(tmp_path, "evidence", OPCHECK_TEST_MAC="")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert not (tmp_path / "evidence").exists()


def test_an_unknown_step_and_a_folder_of_another_host_are_refused(tmp_path: Path) -> None:
    assert "no step is called 'all'" in observe_all(tmp_path, "e", "--only", "all").stderr
    assert observe_all(tmp_path, "e", "--only", "doctor").returncode == 0
    again = observe_all(tmp_path, "e", "--only", "doctor", OPCHECK_TEST_MAC="2.12/15")
    assert again.returncode == 2
    assert "evidence of another host" in again.stderr
    text = (tmp_path / "e" / FILE).read_text()
    (tmp_path / "e" / FILE).write_text(text.replace("emulated", "real"))
    assert "its signature is wrong" in observe_all(tmp_path, "e", "--only", "doctor").stderr


@pytest.mark.slow
def test_a_run_that_a_mac_breaks_off_without_a_reason_is_a_contradiction(tmp_path: Path) -> None:
    done = observe_all(
        tmp_path,
        "evidence",
        *("--only", "models", "--model", "torch.nn:Mish", "--model", "torch.nn:AdaptiveMaxPool3d"),
        OPCHECK_TEST_WRONG="!aten::mish",
    )
    assert done.returncode == 1, done.stderr
    observe_all(tmp_path, "into", "--merge", "evidence")
    # The prediction of the other model is that it breaks off.
    (each,) = found(tmp_path / "into")["contradictions"]
    assert (each["predicted"], each["observed"]) in {("runs to its end", "breaks off"), ("native", "unsupported")}
